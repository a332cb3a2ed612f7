//! Runs a model: validates what it is given, then one node after the other.

use crate::device::{self, DeviceMemoryReport, OnDevice, Placement, Split, TunedModel};
use crate::error::{Error, Result};
use crate::exec::{Program, Slot};
use crate::model::{Model, ValueSpec};
use crate::plan::MemoryReport;
use crate::profile::{Profile, Recorder};
use crate::{inputs, onnx, passes};
use lgp_compute::device::Accelerator;
use lgp_compute::{Context, Isa, Stop, ValueInfo};
use lgp_memory::{
    Datum, Dim, NamedTensor, PoolStats, Shape, SymShape, TensorType, TensorView, ValueKind,
};
use std::borrow::Cow;
use std::time::Duration;

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
    /// As the model is written, in f32. Sums are added up in another order, and convolutions of 3×3
    /// may use Winograd's transforms, F(2×2) and F(4×4), which spread the rounding error of a pixel
    /// over its tile: one a million times larger than the others was measured to put errors of 0.1
    /// into its neighbours.
    #[default]
    Exact,
    /// Products of matrices and convolutions in bf16 with sums in f32, where the machine has
    /// instructions for it (AVX-512 BF16); elsewhere as the model is written.
    Fast,
    /// Products of matrices with constant weights in 8 bits: the weights are quantised when the
    /// model is loaded, what meets them in each run. Convolutions stay f32.
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
    code: Code,
    ctx: Context,
}

/// What a session runs.
#[derive(Debug)]
enum Code {
    Cpu(Program),
    Device(OnDevice),
    Devices(Split),
}

impl Session {
    /// Compiles a model. One that is given by value is gone by the end, each of its weights as
    /// soon as it is packed; of one that is borrowed, both are in memory at once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every operator and attribute that has no implementation,
    /// [`Error::Node`] for a node whose inputs cannot fit, [`Error::Threads`].
    pub fn new<'a>(model: impl Into<Cow<'a, Model>>, options: SessionOptions) -> Result<Self> {
        Self::compile(model.into(), options, Vec::new())
    }

    /// As [`Session::new`], to run on a device. What has no kernels there runs on the CPU:
    /// [`Session::placement`] tells. Weights that find no room in what the accelerator may take
    /// come from the host in each run: [`Session::device_memory`] tells. Kernels compute in f32,
    /// whatever [`Precision`] is asked for.
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

    /// As [`Session::on_device`], on as many of the devices as it takes for weights and values to
    /// fit their memory: the nodes are cut in their order, one part for each device, where the
    /// fewest bytes have to cross. Parts run one after the other, and what crosses does it through
    /// the host's memory. Without a device it runs on the CPU.
    ///
    /// # Errors
    /// As [`Session::new`]; a run, or [`Session::placement`], of inputs for which there is no such
    /// cut is [`Error::Graph`].
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
        // The graph has its weights, and now has them alone if the model was given by value.
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
            .map(|(spec, (_, id))| refined(spec, graph.info(*id)))
            .collect::<Result<_>>()?;
        let code = match accelerators.as_slice() {
            [] => Code::Cpu(Program::new(graph)),
            [one] => Code::Device(OnDevice::new(graph, one.clone())?),
            _ => Code::Devices(Split::new(graph, accelerators)),
        };
        Ok(Self { inputs, outputs, code, ctx })
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

    /// What a run with inputs of these shapes takes of memory, without running it: of the memory
    /// of its device, where it has one.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; on a device, a node whose inputs cannot fit.
    pub fn memory(&self, shapes: &[(&str, Shape)]) -> Result<MemoryReport> {
        let signature = passes::signature(&self.inputs, shapes)?;
        Ok(match &self.code {
            Code::Cpu(program) => program.memory_report(&signature, self.ctx.threads()),
            Code::Device(program) => program.memory_report(&signature)?,
            Code::Devices(program) => program.memory_report(&signature),
        })
    }

    /// How a run with inputs of these shapes uses its device's memory: which weights stay there,
    /// and what goes over the link. A run then does just that. `None` without a device, and with several.
    ///
    /// # Errors
    /// As [`Session::memory`].
    pub fn device_memory(&self, shapes: &[(&str, Shape)]) -> Result<Option<DeviceMemoryReport>> {
        let signature = passes::signature(&self.inputs, shapes)?;
        match &self.code {
            Code::Cpu(_) | Code::Devices(_) => Ok(None),
            Code::Device(program) => program.device_memory(&signature).map(Some),
        }
    }

    /// Where each node runs, for inputs of these shapes. A session without a device has all on
    /// the CPU, and says no more.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; a node whose inputs cannot fit.
    pub fn placement(&self, shapes: &[(&str, Shape)]) -> Result<Vec<Placement>> {
        let signature = passes::signature(&self.inputs, shapes)?;
        match &self.code {
            Code::Cpu(program) => Ok(device::on_cpu(&program.graph)),
            Code::Device(program) => program.placement(&self.ctx, signature),
            Code::Devices(program) => program.placement(&self.ctx, signature),
        }
    }

    /// Measures for about `budget`, for inputs of these shapes, which of their kernels' schedules the
    /// nodes are fastest with on the session's device, those that calculate most first, and then
    /// which nodes are cheaper on the host, transfers counted. Sessions that are made afterwards on
    /// the same accelerator use what was found, and later processes too where it keeps programs
    /// ([`Accelerator::keep_in`]). Nothing for a session without a device, which has no choice, or
    /// on several, which are tuned one by one.
    ///
    /// # Errors
    /// [`Error::Graph`] for an input without a shape; a node whose inputs cannot fit, or whose kernels
    /// do not run.
    pub fn tune(&self, shapes: &[(&str, Shape)], budget: Duration) -> Result<TunedModel> {
        let signature = passes::signature(&self.inputs, shapes)?;
        match &self.code {
            Code::Cpu(_) | Code::Devices(_) => {
                Ok(TunedModel { nodes: Vec::new(), placement: None })
            }
            Code::Device(program) => program.tune(&self.ctx, &signature, budget),
        }
    }

    /// The device that it runs on, if that is not the CPU; of several, the first.
    #[must_use]
    pub fn accelerator(&self) -> Option<&Accelerator> {
        match &self.code {
            Code::Cpu(_) => None,
            Code::Device(program) => Some(program.accelerator()),
            Code::Devices(program) => program.accelerators().first(),
        }
    }

    fn execute<'a>(
        &'a self,
        ctx: &Context,
        inputs: Vec<Slot<'a>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        match &self.code {
            Code::Cpu(program) => program.run(ctx, inputs, recorder),
            Code::Device(program) => program.run(ctx, inputs, recorder),
            Code::Devices(program) => program.run(ctx, inputs, recorder),
        }
    }

    /// What its runs have taken from the pool so far: everything but weights and inputs.
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
        self.run_in(&self.ctx, inputs, None)
    }

    /// Runs the model once, unless it is asked to end first.
    ///
    /// # Errors
    /// As [`Session::run`], and [`Error::Stopped`].
    ///
    /// ```
    /// use lgp_inference::{Error, GraphBuilder, Session, SessionOptions, Stop};
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
    /// let stopped = session.run_until(&[("x", x.view())], &passed);
    /// assert!(matches!(stopped, Err(Error::Stopped(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_until(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>> {
        self.run_in(&self.ctx.clone().with_stop(stop.clone()), inputs, None)
    }

    /// Runs the model once and tells what each node took.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(
        &self,
        inputs: &[(&str, TensorView<'_>)],
    ) -> Result<(Vec<NamedTensor>, Profile)> {
        self.profile_in(&self.ctx, inputs, Recorder::new(true))
    }

    /// Runs the model once as [`Session::run_until`] does, and tells what each node took; none of a batch whose
    /// images run each on a thread of its own, which [`Session::profile`] runs as a whole.
    ///
    /// # Errors
    /// As [`Session::run_until`].
    pub fn profile_until(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        stop: &Stop,
    ) -> Result<(Vec<NamedTensor>, Profile)> {
        self.profile_in(&self.ctx.clone().with_stop(stop.clone()), inputs, Recorder::new(false))
    }

    fn profile_in(
        &self,
        ctx: &Context,
        inputs: &[(&str, TensorView<'_>)],
        mut recorder: Recorder,
    ) -> Result<(Vec<NamedTensor>, Profile)> {
        let outputs = self.run_in(ctx, inputs, Some(&mut recorder))?;
        Ok((outputs, recorder.finish()))
    }

    fn run_in(
        &self,
        ctx: &Context,
        inputs: &[(&str, TensorView<'_>)],
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<NamedTensor>> {
        let outputs = self.run_views(ctx, inputs, recorder)?;
        let outputs = outputs.into_iter().map(|(name, value)| match value {
            Datum::Tensor(tensor) => Ok(NamedTensor::new(name, tensor)),
            other => Err(Error::NotATensor { what: "output", name, kind: other.kind() }),
        });
        outputs.collect()
    }

    fn run_views(
        &self,
        ctx: &Context,
        inputs: &[(&str, TensorView<'_>)],
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<(String, Datum)>> {
        let bound = inputs::bind(&self.inputs, inputs)?;
        let values = self.execute(ctx, bound.into_iter().map(Slot::View).collect(), recorder)?;
        Ok(self.named(values))
    }

    fn named(&self, values: Vec<Datum>) -> Vec<(String, Datum)> {
        self.outputs.iter().map(|spec| spec.name.clone()).zip(values).collect()
    }

    /// Runs the model once as [`Session::run_until`] does; what comes of it may be values of any kind.
    ///
    /// # Errors
    /// As [`Session::run_until`].
    pub fn run_any_until(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        stop: &Stop,
    ) -> Result<Vec<(String, Datum)>> {
        self.run_views(&self.ctx.clone().with_stop(stop.clone()), inputs, None)
    }

    /// Runs the model once on values of any kind: models of classical machine learning return
    /// maps, and some graphs take or return sequences.
    ///
    /// # Errors
    /// As [`Session::run`], and for a value of another kind than the model declares.
    pub fn run_data(&self, inputs: Vec<(&str, Datum)>) -> Result<Vec<(String, Datum)>> {
        self.run_data_in(&self.ctx, inputs, None)
    }

    /// Runs the model once on values of any kind, unless it is asked to end first.
    ///
    /// # Errors
    /// As [`Session::run_data`], and [`Error::Stopped`].
    pub fn run_data_until(
        &self,
        inputs: Vec<(&str, Datum)>,
        stop: &Stop,
    ) -> Result<Vec<(String, Datum)>> {
        self.run_data_in(&self.ctx.clone().with_stop(stop.clone()), inputs, None)
    }

    /// Runs the model once on values of any kind and tells what each node took.
    ///
    /// # Errors
    /// As [`Session::run_data`].
    pub fn profile_data(
        &self,
        inputs: Vec<(&str, Datum)>,
    ) -> Result<(Vec<(String, Datum)>, Profile)> {
        let mut recorder = Recorder::new(true);
        let outputs = self.run_data_in(&self.ctx, inputs, Some(&mut recorder))?;
        Ok((outputs, recorder.finish()))
    }

    fn run_data_in(
        &self,
        ctx: &Context,
        inputs: Vec<(&str, Datum)>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<(String, Datum)>> {
        let bound = inputs::bind_data(&self.inputs, inputs)?.into_iter().map(Slot::Own).collect();
        let values = self.execute(ctx, bound, recorder)?;
        Ok(self.named(values))
    }
}

/// The declared type of an output, made more exact by what was inferred.
fn refined(declared: &ValueSpec, inferred: Option<&ValueInfo>) -> Result<ValueSpec> {
    let Some(ValueInfo { ty: inferred, kind, .. }) = inferred else {
        return Ok(declared.clone());
    };
    let optional = |k| match k {
        ValueKind::Tensor => ValueKind::Optional,
        ValueKind::Sequence => ValueKind::OptionalSequence,
        other => other,
    };
    // Whether a value that may be absent is there shows in a run only.
    let uncertain = *kind == optional(declared.kind);
    if declared.kind != *kind && declared.kind != optional(*kind) && !uncertain {
        return Err(Error::graph(format!(
            "output '{}' is declared {}, but its value is {}",
            declared.name,
            declared.kind.describe(&declared.ty),
            kind.describe(inferred)
        )));
    }
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
    let ty = TensorType { dtype: inferred.dtype, shape };
    let kind = if uncertain { *kind } else { declared.kind };
    Ok(ValueSpec { name: declared.name.clone(), ty, kind })
}
