//! Inputs and outputs that stay bound to a session from one run to the next.

use crate::error::{Error, Result};
use crate::model::names;
use crate::run_options::RunOptions;
use crate::session::Session;
use lgp_memory::{Tensor, TensorView};

/// Tensors bound to a session's inputs, and the outputs of its last run. A run reads the bound
/// inputs where they lie, and they may be written in place between two runs. A run hands over its
/// outputs without a copy, and reuses the memory of the outputs before it.
///
/// ```
/// use lgp_inference::{GraphBuilder, Session, SessionOptions};
/// use lgp_memory::{DType, SymShape, Tensor, TensorType};
///
/// let ty = TensorType { dtype: DType::F32, shape: None };
/// let mut g = GraphBuilder::new("relu");
/// let x = g.input("x", ty.clone());
/// let y = g.node("Relu", &[x], []);
/// g.output("y", y, ty);
/// let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
///
/// let mut binding = session.binding();
/// binding.bind("x", Tensor::from_slice([2], &[-1f32, 2.])?)?;
/// binding.run()?;
/// assert_eq!(binding.output("y")?.as_slice::<f32>()?, [0., 2.]);
/// binding.input_mut("x")?.as_mut_slice::<f32>()?[0] = 7.;
/// binding.run()?;
/// assert_eq!(binding.output("y")?.as_slice::<f32>()?, [7., 2.]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Binding<'s> {
    session: &'s Session,
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Option<Tensor>>,
}

impl Session {
    /// A binding in which nothing is bound yet.
    #[must_use]
    pub fn binding(&self) -> Binding<'_> {
        Binding {
            session: self,
            inputs: vec![None; self.inputs().len()],
            outputs: vec![None; self.outputs().len()],
        }
    }
}

impl Binding<'_> {
    /// Binds an input until another tensor is bound to it.
    ///
    /// # Errors
    /// [`Error::UnknownInput`]. Whether dtype and shape fit is checked by a run.
    pub fn bind(&mut self, name: &str, tensor: Tensor) -> Result<()> {
        let at = self.input_at(name)?;
        self.inputs[at] = Some(tensor);
        Ok(())
    }

    /// A bound input, to be written in place.
    ///
    /// # Errors
    /// [`Error::UnknownInput`], [`Error::MissingInput`].
    pub fn input_mut(&mut self, name: &str) -> Result<&mut Tensor> {
        let at = self.input_at(name)?;
        let spec = &self.session.inputs()[at];
        let missing = || Error::MissingInput { name: name.to_owned(), ty: spec.ty.clone() };
        self.inputs[at].as_mut().ok_or_else(missing)
    }

    /// Runs the session on the bound inputs.
    ///
    /// # Errors
    /// As [`Session::run`]. A failed run leaves no outputs.
    pub fn run(&mut self) -> Result<()> {
        self.run_with(RunOptions::new())
    }

    /// Runs the session on the bound inputs, as the options say.
    ///
    /// # Errors
    /// As [`Session::run_with`]. A failed run leaves no outputs.
    pub fn run_with(&mut self, options: RunOptions<'_>) -> Result<()> {
        self.outputs.fill(None);
        let bound = self.session.inputs().iter().zip(&self.inputs);
        let views: Vec<(&str, TensorView<'_>)> = bound
            .filter_map(|(spec, tensor)| Some((spec.name.as_str(), tensor.as_ref()?.view())))
            .collect();
        let outputs = self.session.run_with(&views, options)?;
        self.outputs = outputs.into_iter().map(|output| Some(output.tensor)).collect();
        Ok(())
    }

    /// An output of the last run.
    ///
    /// # Errors
    /// [`Error::NoOutput`] for an unknown name, or when there was no run yet or it failed.
    pub fn output(&self, name: &str) -> Result<&Tensor> {
        let at = self.session.outputs().iter().position(|spec| spec.name == name);
        let tensor = at.and_then(|at| self.outputs.get(at)?.as_ref());
        tensor.ok_or_else(|| Error::NoOutput {
            name: name.to_owned(),
            known: names(self.session.outputs()),
        })
    }

    fn input_at(&self, name: &str) -> Result<usize> {
        let inputs = self.session.inputs();
        inputs
            .iter()
            .position(|spec| spec.name == name)
            .ok_or_else(|| Error::UnknownInput { given: name.to_owned(), expected: names(inputs) })
    }
}
