//! A model that is ready to run, and the checks of its inputs.

use crate::compiled::Compiled;
use crate::device::{DeviceMemoryReport, OnDevice, Placement, Split, TunedModel};
use crate::error::{Error, Result};
use crate::exec::Program;
use crate::model::{Model, ValueSpec};
use crate::options::SessionOptions;
use crate::plan::MemoryReport;
use crate::profile::Recorder;
use crate::run_options::RunOptions;
use crate::slots::Slot;
use crate::{inputs, onnx, outputs, passes, rows};
use lgp_compute::Context;
use lgp_compute::device::Accelerator;
use lgp_memory::{Datum, NamedTensor, PoolStats, Shape, TensorView};
use std::borrow::Cow;
use std::time::Duration;

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
/// let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
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
    /// Whether the rows of a batch are independent of each other.
    independent: bool,
    code: Box<dyn Compiled>,
    pub(crate) ctx: Context,
}

impl Session {
    /// Compiles a model. A model given by value is dropped on the way, each weight as soon as it is
    /// packed; a borrowed model and the session are in memory at once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every operator and attribute that has no implementation,
    /// [`Error::Node`] for a node whose inputs cannot fit, [`Error::Threads`].
    pub fn new<'a>(model: impl Into<Cow<'a, Model>>, options: SessionOptions) -> Result<Self> {
        Self::compile(model.into(), options, Vec::new())
    }

    /// As [`Session::new`], on a device. Nodes without kernels there run on the CPU
    /// ([`Session::placement`]). Weights that do not fit the accelerator's memory come from the
    /// host in each run ([`Session::device_memory`]). Kernels compute in f32 for every
    /// [`Precision`](crate::Precision).
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn on_device<'a>(
        model: impl Into<Cow<'a, Model>>,
        options: SessionOptions,
        accelerator: Accelerator,
    ) -> Result<Self> {
        Self::compile(model.into(), options, vec![accelerator])
    }

    /// As [`Session::on_device`], on as many of the devices as weights and values need to fit their
    /// memory. The nodes are cut in their order, one part for each device, where the fewest bytes
    /// cross. Parts run one after the other, and values cross through the host's memory. Without
    /// any device, the session runs on the CPU.
    ///
    /// # Errors
    /// As [`Session::new`]. If no cut fits the devices, a run or [`Session::placement`] fails with
    /// [`Error::NoCut`].
    pub fn on_devices<'a>(
        model: impl Into<Cow<'a, Model>>,
        options: SessionOptions,
        accelerators: Vec<Accelerator>,
    ) -> Result<Self> {
        Self::compile(model.into(), options, accelerators)
    }

    fn compile(
        model: Cow<'_, Model>,
        options: SessionOptions,
        accelerators: Vec<Accelerator>,
    ) -> Result<Self> {
        let threads = options.threads.max(1);
        let mut graph = onnx::lower(&model, options)?;
        let (inputs, declared) = (model.inputs().to_vec(), model.outputs().to_vec());
        // The graph has the weights: if the model was given by value, it now has them alone.
        drop(model);
        let ctx = Context::new(threads).with_isa(options.isa);
        if ctx.threads() < threads {
            let message = format!("the system started {}", ctx.threads());
            return Err(Error::Threads { threads, message });
        }
        match accelerators.is_empty() {
            true => passes::optimize(&mut graph)?,
            false => passes::optimize_for_device(&mut graph)?,
        }
        let outputs = declared
            .iter()
            .zip(&graph.outputs)
            .map(|(spec, (_, id))| outputs::refined(spec, graph.info(*id)))
            .collect::<Result<_>>()?;
        let independent = rows::are_independent(&graph);
        let code: Box<dyn Compiled> = match accelerators.as_slice() {
            [] => Box::new(Program::new(graph)),
            [one] => Box::new(OnDevice::new(graph, one.clone())?),
            _ => Box::new(Split::new(graph, accelerators)),
        };
        Ok(Self { inputs, outputs, independent, code, ctx })
    }

    /// The inputs that a run needs, in any order.
    #[must_use]
    pub fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    /// The outputs of a run, in this order. Types are as exact as inference could make them.
    #[must_use]
    pub fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// Whether requests give the same outputs in one batch as one by one: the first dimension of
    /// all inputs and outputs is one symbol, and the operators' axes prove that each row of an
    /// output follows from the same row of the inputs. `false` if that is not proved.
    #[must_use]
    pub fn rows_are_independent(&self) -> bool {
        self.independent
    }

    /// The memory that a run with inputs of these shapes takes, without running it: on the device,
    /// if there is one.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; on a device, a node whose inputs cannot fit.
    pub fn memory(&self, shapes: &[(&str, Shape)]) -> Result<MemoryReport> {
        let signature = passes::signature(&self.inputs, shapes)?;
        self.code.memory_report(&self.ctx, &signature)
    }

    /// The use of the device's memory and link by a run with inputs of these shapes, and the
    /// weights that stay there. A run does exactly this. `None` without a device, and with several.
    ///
    /// # Errors
    /// As [`Session::memory`].
    pub fn device_memory(&self, shapes: &[(&str, Shape)]) -> Result<Option<DeviceMemoryReport>> {
        let signature = passes::signature(&self.inputs, shapes)?;
        self.code.device_memory(&signature)
    }

    /// The placement of each node, for inputs of these shapes. Without a device, all nodes are on
    /// the CPU.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; a node whose inputs cannot fit.
    pub fn placement(&self, shapes: &[(&str, Shape)]) -> Result<Vec<Placement>> {
        let signature = passes::signature(&self.inputs, shapes)?;
        self.code.placement(&self.ctx, signature)
    }

    /// Measures on the session's device for about `budget`, for inputs of these shapes, which
    /// schedules of the kernels are fastest for each node, those that calculate most first, and
    /// then which nodes are cheaper on the host, transfers included. Later sessions on the same
    /// accelerator use the results, and so do later processes if it keeps programs
    /// ([`Accelerator::keep_in`]). The result is empty without a device, and on several devices,
    /// which are tuned one by one.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; a node whose inputs cannot fit, or whose
    /// kernels do not run.
    pub fn tune(&self, shapes: &[(&str, Shape)], budget: Duration) -> Result<TunedModel> {
        let signature = passes::signature(&self.inputs, shapes)?;
        self.code.tune(&self.ctx, &signature, budget)
    }

    /// The device of the session, if it is not the CPU; with several devices, the first.
    #[must_use]
    pub fn accelerator(&self) -> Option<&Accelerator> {
        self.code.accelerator()
    }

    /// The memory that runs have taken from the pool so far, without weights and inputs.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.ctx.pool().stats()
    }

    /// Runs the model once.
    ///
    /// # Errors
    /// For an unknown, missing or repeated input, or one of the wrong dtype or shape, with what was
    /// given and what was expected; [`Error::Node`] when a node cannot compute, out of memory
    /// included.
    pub fn run(&self, inputs: &[(&str, TensorView<'_>)]) -> Result<Vec<NamedTensor>> {
        self.run_with(inputs, RunOptions::new())
    }

    /// Runs the model once, as the options say.
    ///
    /// # Errors
    /// As [`Session::run`], and [`Error::Stopped`] if the run is asked to end first.
    ///
    /// ```
    /// use lgp_inference::{Error, GraphBuilder, RunOptions, Session, SessionOptions, Stop};
    /// use lgp_memory::{DType, Tensor, TensorType};
    ///
    /// let ty = TensorType { dtype: DType::F32, shape: None };
    /// let mut g = GraphBuilder::new("relu");
    /// let x = g.input("x", ty.clone());
    /// let y = g.node("Relu", &[x], []);
    /// g.output("y", y, ty);
    /// let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
    ///
    /// let x = Tensor::from_slice([1], &[1f32])?;
    /// let passed = Stop::at(std::time::Instant::now());
    /// let stopped = session.run_with(&[("x", x.view())], RunOptions::new().until(&passed));
    /// assert!(matches!(stopped, Err(Error::Stopped(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_with(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        options: RunOptions<'_>,
    ) -> Result<Vec<NamedTensor>> {
        options.apply(&self.ctx, |ctx, recorder| self.run_tensors(ctx, inputs, recorder))
    }

    /// Runs the model once on borrowed tensors, as [`Session::run_with`] does, but outputs may be
    /// values of any kind.
    ///
    /// # Errors
    /// As [`Session::run_with`].
    pub fn run_any_with(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        options: RunOptions<'_>,
    ) -> Result<Vec<(String, Datum)>> {
        options.apply(&self.ctx, |ctx, recorder| self.run_views(ctx, inputs, recorder))
    }

    /// Runs the model once on values of any kind: models of classical machine learning return
    /// maps, and some graphs take or return sequences.
    ///
    /// # Errors
    /// As [`Session::run`], and for a value of another kind than the model declares.
    pub fn run_data(&self, inputs: Vec<(&str, Datum)>) -> Result<Vec<(String, Datum)>> {
        self.run_data_with(inputs, RunOptions::new())
    }

    /// Runs the model once on values of any kind, as the options say.
    ///
    /// # Errors
    /// As [`Session::run_data`], and [`Error::Stopped`].
    pub fn run_data_with(
        &self,
        inputs: Vec<(&str, Datum)>,
        options: RunOptions<'_>,
    ) -> Result<Vec<(String, Datum)>> {
        options.apply(&self.ctx, |ctx, recorder| {
            let bound = inputs::bind_data(&self.inputs, inputs)?;
            self.execute(ctx, bound.into_iter().map(Slot::Own).collect(), recorder)
        })
    }

    /// A run on tensors that returns tensors.
    pub(crate) fn run_tensors(
        &self,
        ctx: &Context,
        inputs: &[(&str, TensorView<'_>)],
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<NamedTensor>> {
        outputs::tensors(self.run_views(ctx, inputs, recorder)?)
    }

    fn run_views(
        &self,
        ctx: &Context,
        inputs: &[(&str, TensorView<'_>)],
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<(String, Datum)>> {
        let bound = inputs::bind(&self.inputs, inputs)?;
        self.execute(ctx, bound.into_iter().map(Slot::View).collect(), recorder)
    }

    /// Runs the compiled graph on inputs in the model's order, and names its outputs.
    fn execute(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<(String, Datum)>> {
        let values = self.code.run(ctx, inputs, recorder)?;
        Ok(self.outputs.iter().map(|spec| spec.name.clone()).zip(values).collect())
    }
}
