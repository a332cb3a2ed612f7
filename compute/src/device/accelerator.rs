//! A device with what operators need of it: a queue, memory and compiled programs.

use super::cache::Cache;
use super::memory::{Counters, HostLimit, free_bytes};
use super::recipe::{Argument, Kernel, Recipe};
use super::tensor::DeviceTensor;
use super::tune::Choices;
use super::turn::Runs;
use super::uploads::Uploads;
use crate::error::{Error, Result};
use lgp_hal::{Arg, Blas, Device, DeviceId, Event, GROUP_MAX, Launch, Program, Queue};
use lgp_memory::{DType, DevicePool, SegmentLimits};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A recipe whose kernels are compiled.
#[derive(Debug)]
pub struct Prepared {
    recipe: Recipe,
    programs: Vec<Arc<dyn Program>>,
}

impl Prepared {
    /// What is launched.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

/// An opened device that runs operators, with memory of its own. Clones share its queue, so that
/// all that they launch happens in order: what one run has let go of, the next may have at once,
/// while kernels that use it are still queued.
#[derive(Clone)]
pub struct Accelerator(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) device: Arc<dyn Device>,
    pub(super) cache: OnceLock<Cache>,
    pub(super) choices: Mutex<Choices>,
    queue: Mutex<Box<dyn Queue>>,
    programs: Mutex<HashMap<Kernel, Arc<dyn Program>>>,
    pub(super) pool: DevicePool,
    pub(super) runs: Runs,
    pub(super) uploads: Mutex<Uploads>,
    pub(super) traffic: Counters,
    pub(super) host: OnceLock<HostLimit>,
}

impl std::fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accelerator").field("device", &self.0.device).finish_non_exhaustive()
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All are consistent between any two statements that could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accelerator {
    /// Makes a queue on a device that compiles programs. Of its memory it takes what is free now,
    /// less a margin for the driver, the screen and other programs: an eighth, 1 GiB at most.
    ///
    /// # Errors
    /// [`Error::Device`]: it compiles none, its work-groups or their memory are smaller than
    /// kernels rely on, or its driver refuses.
    pub fn new(device: Arc<dyn Device>) -> Result<Self> {
        let limit = free_bytes(&*device);
        Self::with_memory(device, limit)
    }

    /// As [`Accelerator::new`], with at most `bytes` bytes of the device's memory.
    ///
    /// # Errors
    /// As [`Accelerator::new`], and a limit below the alignment of buffers.
    pub fn with_memory(device: Arc<dyn Device>, bytes: usize) -> Result<Self> {
        let limits = SegmentLimits::of_device(device.caps(), bytes);
        Self::with_limits(device, limits)
    }

    /// As [`Accelerator::with_memory`], taken of the device in pieces as `limits` say.
    ///
    /// # Errors
    /// As [`Accelerator::new`], and limits that contradict themselves.
    pub fn with_limits(device: Arc<dyn Device>, limits: SegmentLimits) -> Result<Self> {
        if let Some(reason) = device.caps().unfit() {
            let device = device.id();
            let what = "kernels";
            return Err(Error::Device(lgp_hal::Error::Unsupported { device, what, reason }));
        }
        Ok(Self(Arc::new(Inner {
            queue: Mutex::new(device.queue()?),
            programs: Mutex::default(),
            pool: DevicePool::new(Arc::clone(&device), limits)?,
            runs: Runs::default(),
            uploads: Mutex::default(),
            traffic: Counters::default(),
            host: OnceLock::new(),
            cache: OnceLock::new(),
            choices: Mutex::default(),
            device,
        })))
    }

    /// The same device, opened once more after it was lost, within the same limits of its memory and
    /// with the same folder of programs and choices. Nothing of what lay in its memory is there.
    ///
    /// # Errors
    /// What opening it says, or as [`Accelerator::new`].
    pub fn reopened(&self) -> Result<Self> {
        let opened = Self::with_limits(lgp_hal::open(self.id())?, self.0.pool.limits())?;
        if let Some(cache) = self.0.cache.get() {
            opened.keep_in(cache.folder())?;
        }
        Ok(opened)
    }

    /// Bytes of the device's memory that it may take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.pool.limits().budget_bytes
    }

    /// The device's name in settings and messages.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.0.device.id()
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.0.device
    }

    /// The point up to which work has been launched.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub(crate) fn record(&self) -> Result<Arc<dyn Event>> {
        Ok(self.queue().record()?)
    }

    /// Compiles what a recipe launches; each kernel is compiled once.
    ///
    /// # Errors
    /// [`Error::Device`] with the compiler's messages, or for a library that the device has not.
    pub fn prepare(&self, recipe: Recipe) -> Result<Prepared> {
        // A device here may take more than the cards do that a kernel must fit as well.
        let items = |kernel: &Kernel| kernel.group().iter().product::<usize>();
        if let Some(call) = recipe.calls().iter().find(|call| items(&call.kernel) > GROUP_MAX) {
            let (kernel, group) = (call.kernel.name(), call.kernel.group());
            let message = format!("kernel {kernel} has groups of {group:?}, at most {GROUP_MAX}");
            return Err(Error::invalid(message).of("prepare"));
        }
        if recipe.library().is_some() {
            self.blas()?;
        }
        let programs = recipe.calls().iter().map(|call| self.program(&call.kernel));
        Ok(Prepared { programs: programs.collect::<Result<_>>()?, recipe })
    }

    /// The library of the device's vendor.
    ///
    /// # Errors
    /// [`Error::Device`] where there is none.
    fn blas(&self) -> Result<Arc<dyn Blas>> {
        self.0.device.blas().ok_or_else(|| {
            let reason = "there is no library of the vendor's for it".to_owned();
            let device = self.id();
            Error::Device(lgp_hal::Error::Unsupported { device, what: "gemm", reason })
        })
    }

    fn program(&self, kernel: &Kernel) -> Result<Arc<dyn Program>> {
        if let Some(program) = lock(&self.0.programs).get(kernel) {
            return Ok(Arc::clone(program));
        }
        // Compiled without the lock: two threads may do it twice, none waits for another's.
        let source = kernel.source();
        let program = match self.0.cache.get() {
            Some(cache) => cache.program(&*self.0.device, &source)?,
            None => self.0.device.compile(&source, "")?,
        };
        lock(&self.0.programs).insert(kernel.clone(), Arc::clone(&program));
        Ok(program)
    }

    /// Launches a recipe. Inputs and outputs have the types that it was made for.
    ///
    /// # Errors
    /// An argument that is missing, out of memory for its scratch buffers, or a refusal of the
    /// driver.
    pub fn launch(
        &self,
        prepared: &Prepared,
        inputs: &[Option<&DeviceTensor>],
        outputs: &[Option<&DeviceTensor>],
    ) -> Result<()> {
        let bytes = |&bytes: &usize| self.alloc_for("scratch", DType::U8, [bytes]);
        let scratch: Vec<DeviceTensor> =
            prepared.recipe.scratch().iter().map(bytes).collect::<Result<_>>()?;
        self.launch_with(prepared, inputs, outputs, &scratch)
    }

    /// As [`Accelerator::launch`], with scratch buffers of the bytes that the recipe names, which
    /// nothing else uses until its kernels are done.
    ///
    /// # Errors
    /// An argument that is missing or too small, or a refusal of the driver.
    pub fn launch_with(
        &self,
        prepared: &Prepared,
        inputs: &[Option<&DeviceTensor>],
        outputs: &[Option<&DeviceTensor>],
        scratch: &[DeviceTensor],
    ) -> Result<()> {
        let sizes = |tensors: &[Option<&DeviceTensor>]| -> Vec<usize> {
            let bytes = |tensor: &DeviceTensor| tensor.buffer().bytes();
            tensors.iter().map(|tensor| tensor.map_or(0, bytes)).collect()
        };
        let spare: Vec<usize> = scratch.iter().map(|tensor| tensor.buffer().bytes()).collect();
        if !prepared.recipe.fits(&sizes(inputs), &sizes(outputs), &spare) {
            let message = "inputs or outputs have not the types that it was made for";
            return Err(Error::invalid(message).of("launch"));
        }
        if let Some(product) = prepared.recipe.library() {
            let product = product.on(inputs, outputs, scratch)?;
            self.blas()?.gemm(&mut **self.queue(), &product)?;
        }
        for (call, program) in prepared.recipe.calls().iter().zip(&prepared.programs) {
            let argument = |argument: &Argument| argument.resolve(inputs, outputs, scratch);
            let args: Vec<Arg<'_>> = call.arguments.iter().map(argument).collect::<Result<_>>()?;
            let local = call.kernel.group();
            let global = std::array::from_fn(|d| call.groups[d].saturating_mul(local[d]));
            let kernel = call.kernel.name();
            let launch =
                Launch { program: &**program, kernel, global, local: Some(local), args: &args };
            // SAFETY: a recipe promises that its kernels stay within buffers of the sizes just
            // checked, and that its arguments are those of their parameters.
            unsafe { self.queue().launch(&launch)? };
        }
        Ok(())
    }

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// A failure of an earlier launch.
    pub fn finish(&self) -> Result<()> {
        Ok(self.queue().finish()?)
    }

    /// Hands all that was launched to the device without waiting for it.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn submit(&self) -> Result<()> {
        Ok(self.queue().submit()?)
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The queue in which everything happens but the uploads that run ahead.
    pub(super) fn queue(&self) -> MutexGuard<'_, Box<dyn Queue>> {
        lock(&self.0.queue)
    }
}

impl Argument {
    pub(super) fn resolve<'a>(
        &self,
        inputs: &[Option<&'a DeviceTensor>],
        outputs: &[Option<&'a DeviceTensor>],
        scratch: &'a [DeviceTensor],
    ) -> Result<Arg<'a>> {
        let tensor = |tensors: &[Option<&'a DeviceTensor>], what: &str, i: usize| {
            let tensor = tensors.get(i).copied().flatten();
            let missing = || Error::invalid(format!("{what} {i} is missing")).of("launch");
            tensor.map(|tensor| Arg::Buffer(&**tensor.buffer())).ok_or_else(missing)
        };
        match *self {
            Self::Input(i) => tensor(inputs, "input", i),
            Self::Output(i) => tensor(outputs, "output", i),
            Self::Scratch(i) => scratch
                .get(i)
                .map(|tensor| Arg::Buffer(&**tensor.buffer()))
                .ok_or_else(|| Error::invalid(format!("scratch {i} is missing")).of("launch")),
            Self::U32(value) => Ok(Arg::U32(value)),
            Self::I32(value) => Ok(Arg::I32(value)),
            Self::F32(value) => Ok(Arg::F32(value)),
        }
    }
}
