//! A device with the parts that operators need: a queue, memory and compiled programs.

mod cache;
mod memory;
mod tune;
mod turn;
mod uploads;

pub use memory::{DeviceArena, HostLimit, Traffic};
pub use tune::Tuned;
pub use turn::{Kept, PinnedTensor, Resident, Turn};
pub use uploads::{Ahead, Mark};

use super::kernel::{Argument, Kernel};
use super::recipe::Recipe;
use super::tensor::DeviceTensor;
use crate::error::{Error, Result};
use cache::{Cache, Choices};
use lgp_hal::{Arg, Blas, Device, DeviceId, Event, GROUP_MAX, Launch, Program, Queue};
use lgp_memory::{DType, DevicePool, SegmentLimits};
use memory::{Counters, free_bytes};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use turn::Runs;
use uploads::Uploads;

/// A recipe whose kernels are compiled.
#[derive(Debug)]
pub struct Prepared {
    recipe: Recipe,
    programs: Vec<Arc<dyn Program>>,
}

impl Prepared {
    /// The recipe that is launched.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
}

/// An opened device that runs operators, with memory of its own. Clones share one queue, so all
/// their launches run in order. The next run may therefore take the memory that a run releases at
/// once, while kernels that use it are still queued.
#[derive(Clone)]
pub struct Accelerator(Arc<Inner>);

struct Inner {
    device: Arc<dyn Device>,
    cache: OnceLock<Cache>,
    choices: Mutex<Choices>,
    queue: Mutex<Box<dyn Queue>>,
    programs: Mutex<HashMap<Kernel, Arc<dyn Program>>>,
    pool: DevicePool,
    runs: Runs,
    uploads: Mutex<Uploads>,
    traffic: Counters,
    host: OnceLock<HostLimit>,
}

impl std::fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accelerator").field("device", &self.0.device).finish_non_exhaustive()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every value behind these locks is consistent between any two statements that could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accelerator {
    /// Makes a queue on a device that compiles programs. Tensors may take the device's free memory,
    /// less a margin for the driver, the screen and other programs: an eighth, 1 GiB at most.
    ///
    /// # Errors
    /// [`Error::Device`]: the device compiles no programs, its work-groups or their memory are
    /// smaller than kernels rely on, or its driver refuses.
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

    /// As [`Accelerator::with_memory`], with segments of the device's memory as `limits` say.
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

    /// Opens the same device again after it was lost, with the same limits of its memory and the
    /// same folder of programs and choices. The former contents of its memory are lost.
    ///
    /// # Errors
    /// As [`lgp_hal::open`], [`Accelerator::new`] and [`Accelerator::keep_in`]. After
    /// [`lgp_hal::Error::NeedsRestart`] no other call succeeds either, until the process is another.
    pub fn reopened(&self) -> Result<Self> {
        let opened = Self::with_limits(lgp_hal::open(self.id())?, self.0.pool.limits())?;
        if let Some(cache) = self.0.cache.get() {
            opened.keep_in(cache.folder())?;
        }
        Ok(opened)
    }

    /// Bytes of the device's memory that tensors may take.
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
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.0.device
    }

    /// An event that is done once all work launched so far is done.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub(crate) fn record(&self) -> Result<Arc<dyn Event>> {
        Ok(self.queue().record()?)
    }

    /// Compiles the kernels of a recipe, each of them once, and starts the library that it needs.
    ///
    /// # Errors
    /// [`Error::Device`] with the compiler's messages, or for a library that the device lacks;
    /// [`Error::Invalid`] for work-groups larger than kernels may have.
    pub fn prepare(&self, recipe: Recipe) -> Result<Prepared> {
        // This device may take larger groups than other devices, which every kernel must fit, too.
        let items = |kernel: &Kernel| kernel.group().iter().product::<usize>();
        if let Some(call) = recipe.calls().iter().find(|call| items(&call.kernel) > GROUP_MAX) {
            let (kernel, group) = (call.kernel.name(), call.kernel.group());
            let message = format!("kernel {kernel} has groups of {group:?}, at most {GROUP_MAX}");
            return Err(Error::invalid(message).of("prepare"));
        }
        if recipe.library().is_some() {
            self.blas()?.prepare(&mut **self.queue())?;
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
        // Compiling does not hold the lock: two threads may compile one kernel twice, but no thread
        // waits for another's compilation.
        let source = kernel.source();
        let program = match self.0.cache.get() {
            Some(cache) => cache.program(&*self.0.device, &source)?,
            None => self.0.device.compile(&source, "")?,
        };
        lock(&self.0.programs).insert(kernel.clone(), Arc::clone(&program));
        Ok(program)
    }

    /// Launches a recipe. Inputs and outputs have the types that the recipe was made for.
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
            let message =
                "the sizes of inputs or outputs differ from those that the launch was prepared for";
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
            let launched = unsafe { self.queue().launch(&launch) };
            // Some drivers take a buffer's memory only now.
            let bytes = || prepared.recipe.sizes()[1].iter().sum();
            launched.map_err(|error| self.told(error, bytes(), "launch"))?;
        }
        Ok(())
    }

    /// Waits until all launched work is done.
    ///
    /// # Errors
    /// A failure of an earlier launch.
    pub fn finish(&self) -> Result<()> {
        Ok(self.queue().finish()?)
    }

    /// Hands all launched work to the device without waiting for it.
    ///
    /// # Errors
    /// A refusal of the driver.
    pub fn submit(&self) -> Result<()> {
        Ok(self.queue().submit()?)
    }

    /// The queue of all commands except the uploads that run ahead.
    fn queue(&self) -> MutexGuard<'_, Box<dyn Queue>> {
        lock(&self.0.queue)
    }
}
