//! Runs a model: validates what it is given, then one node after the other.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::model::{Model, ValueSpec};
use crate::plan::Plan;
use crate::{inputs, onnx, passes};
use lgp_compute::{Context, Isa};
use lgp_memory::{Dim, NamedTensor, SymShape, Tensor, TensorType, TensorView};

/// How a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that one run may use; 1 runs on the caller's thread alone.
    pub threads: usize,
    /// The widest vector instructions that kernels may use; `None` is what the machine has.
    pub isa: Option<Isa>,
    /// How precisely to compute.
    pub precision: Precision,
}

impl Default for SessionOptions {
    /// A thread for each core, all instructions, exact.
    fn default() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl SessionOptions {
    /// The default with a number of threads.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, isa: None, precision: Precision::Exact }
    }
}

/// How precisely a session computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As the model is written.
    #[default]
    Exact,
    /// Products of matrices in bf16 with sums in f32, where the machine has instructions for it.
    Fast,
    /// Weights and activations of 8 bits, quantised when the model is loaded.
    Int8,
}

/// A model that is ready to run. It can be shared: any number of threads may call
/// [`Session::run`] at once, and each run's result depends on its inputs alone.
///
/// ```
/// use lgp_inference::{GraphBuilder, Session, SessionOptions};
/// use lgp_memory::{DType, Dim, SymShape, TensorType, TensorView};
/// use ndarray::array;
///
/// let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]);
/// let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
/// let mut g = GraphBuilder::new("relu");
/// let x = g.input("x", ty.clone());
/// let y = g.node("Relu", &[x], []);
/// g.output("y", y, ty);
///
/// let session = Session::new(&g.finish()?, SessionOptions::with_threads(1))?;
/// let x = array![[-1f32, 2.]].into_dyn();
/// let outputs = session.run(&[("x", TensorView::try_from(x.view())?)])?;
/// assert_eq!(outputs[0].name, "y");
/// assert_eq!(outputs[0].tensor.to_array::<f32>()?, array![[0., 2.]].into_dyn());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    graph: Graph,
    plan: Plan,
    ctx: Context,
}

impl Session {
    /// Compiles a model.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every operator and attribute that has no implementation,
    /// [`Error::Node`] for a node whose inputs cannot fit, [`Error::Threads`].
    pub fn new(model: &Model, options: SessionOptions) -> Result<Self> {
        let threads = options.threads.max(1);
        let mut graph = onnx::lower(model)?;
        let ctx = Context::new(threads).with_isa(options.isa);
        if ctx.threads() < threads {
            let message = format!("the system started {}", ctx.threads());
            return Err(Error::Threads { threads, message });
        }
        graph.options = options;
        passes::optimize(&mut graph)?;
        let outputs = model
            .outputs()
            .iter()
            .zip(&graph.outputs)
            .map(|(spec, (_, id))| refined(spec, graph.info(*id).map(|info| &info.ty)))
            .collect::<Result<_>>()?;
        let plan = Plan::new(&graph);
        Ok(Self { inputs: model.inputs().to_vec(), outputs, graph, plan, ctx })
    }

    /// What a run must be given, in any order.
    #[must_use]
    pub fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    /// What a run returns, in this order. Types are as exact as inference could make them.
    #[must_use]
    pub fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// Runs the model once.
    ///
    /// # Errors
    /// For an unknown, missing or repeated input, or one of the wrong dtype or shape, with what was
    /// given and what was expected; [`Error::Node`] when a node cannot compute, out of memory
    /// included.
    pub fn run(&self, inputs: &[(&str, TensorView<'_>)]) -> Result<Vec<NamedTensor>> {
        let bound = inputs::bind(&self.inputs, inputs)?;
        self.execute(&bound)
    }

    fn execute(&self, inputs: &[TensorView<'_>]) -> Result<Vec<NamedTensor>> {
        let mut values: Vec<Option<Tensor>> = vec![None; self.graph.values.len()];
        for (node, frees) in self.graph.nodes.iter().zip(&self.plan.frees) {
            let results = self.launch(node, inputs, &values)?;
            for (id, tensor) in node.outputs.iter().zip(results) {
                if let Some(id) = id {
                    values[id.0] = Some(tensor);
                }
            }
            for id in frees {
                values[id.0] = None;
            }
        }
        let outputs = self.graph.outputs.iter().map(|(name, id)| {
            let tensor = self.value(*id, inputs, &values)?.to_tensor()?;
            Ok(NamedTensor::new(name.clone(), tensor))
        });
        outputs.collect()
    }

    fn launch(
        &self,
        node: &Node,
        inputs: &[TensorView<'_>],
        values: &[Option<Tensor>],
    ) -> Result<Vec<Tensor>> {
        let mut views = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            views.push(match input {
                Some(id) => Some(self.value(*id, inputs, values)?),
                None => None,
            });
        }
        let results = node.op.run(&self.ctx, &views).map_err(|e| node_error(node, e))?;
        if results.len() < node.outputs.len() {
            return Err(Error::graph(format!(
                "node '{}' ({}) made {} outputs, expected {}",
                node.name,
                node.op.name(),
                results.len(),
                node.outputs.len()
            )));
        }
        Ok(results)
    }

    /// A value that is there: computed, stored or given.
    fn value<'a>(
        &'a self,
        id: ValueId,
        inputs: &[TensorView<'a>],
        values: &'a [Option<Tensor>],
    ) -> Result<TensorView<'a>> {
        if let Some(tensor) = &values[id.0] {
            return Ok(tensor.view());
        }
        if let Some(tensor) = self.graph.constant(id) {
            return Ok(tensor.view());
        }
        if let Some(position) = self.graph.inputs.iter().position(|&i| i == id) {
            return Ok(inputs[position].clone());
        }
        let name = &self.graph.values[id.0].name;
        Err(Error::graph(format!("value '{name}' is read before it exists")))
    }
}

/// The declared type of an output, made more exact by what was inferred.
fn refined(declared: &ValueSpec, inferred: Option<&TensorType>) -> Result<ValueSpec> {
    let Some(inferred) = inferred else {
        return Ok(declared.clone());
    };
    if inferred.dtype != declared.ty.dtype {
        return Err(Error::graph(format!(
            "output '{}' is declared {}, but its value is {}",
            declared.name, declared.ty.dtype, inferred.dtype
        )));
    }
    let shape = match (&declared.ty.shape, &inferred.shape) {
        (Some(a), Some(b)) if a.rank() == b.rank() => {
            let dims = a.0.iter().zip(&b.0).map(|(a, b)| match (a, b) {
                (Dim::Known(_) | Dim::Symbol(_), Dim::Unknown)
                | (Dim::Symbol(_), Dim::Symbol(_)) => a,
                _ => b,
            });
            Some(SymShape(dims.cloned().collect()))
        }
        (declared, None) => declared.clone(),
        (_, inferred) => inferred.clone(),
    };
    Ok(ValueSpec { name: declared.name.clone(), ty: TensorType { dtype: inferred.dtype, shape } })
}
