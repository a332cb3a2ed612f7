//! A device with what operators need of it: a queue, memory and compiled programs.

use super::recipe::{Argument, GROUP_MAX, Kernel, LOCAL_BYTES, Recipe};
use crate::error::{Error, Result};
use lgp_hal::{Arg, Buffer, Device, DeviceId, Launch, Program, Queue};
use lgp_memory::{DType, Shape, Tensor, TensorView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tensor in a device's memory. Clones share the memory.
#[derive(Debug, Clone)]
pub struct DeviceTensor {
    dtype: DType,
    shape: Shape,
    buffer: Arc<dyn Buffer>,
}

impl DeviceTensor {
    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// [`lgp_memory::Error::TooLarge`], or a shape of another number of elements.
    pub fn reshaped(&self, dtype: DType, shape: Shape) -> Result<Self> {
        let bytes = shape.byte_len(dtype)?;
        if bytes != self.shape.byte_len(self.dtype)? {
            let message = format!("{:?} has not the elements of {:?}", shape, self.shape);
            return Err(Error::invalid("Reshape", message));
        }
        Ok(Self { dtype, shape, buffer: Arc::clone(&self.buffer) })
    }
}

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

/// An opened device that runs operators. Clones share its queue, so that all that they launch
/// happens in order.
#[derive(Clone)]
pub struct Accelerator(Arc<Inner>);

struct Inner {
    device: Arc<dyn Device>,
    queue: Mutex<Box<dyn Queue>>,
    programs: Mutex<HashMap<Kernel, Arc<dyn Program>>>,
}

impl std::fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accelerator").field("device", &self.0.device).finish_non_exhaustive()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are consistent between any two statements that could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accelerator {
    /// Makes a queue on a device that compiles programs.
    ///
    /// # Errors
    /// [`Error::Device`]: it compiles none, its work-groups or their memory are smaller than
    /// kernels rely on, or its driver refuses.
    pub fn new(device: Arc<dyn Device>) -> Result<Self> {
        let caps = device.caps();
        let unfit = |reason: String| {
            let device = device.id();
            Error::Device(lgp_hal::Error::Unsupported { device, what: "kernels", reason })
        };
        if !caps.programs {
            return Err(unfit("it compiles no programs".to_owned()));
        }
        let (group, local) = (caps.work_group_max as usize, caps.local_memory_bytes);
        if group < GROUP_MAX || local < LOCAL_BYTES {
            let has = format!("work-groups of {group} and {local} bytes of local memory");
            let wanted = format!("{GROUP_MAX} and {LOCAL_BYTES}");
            return Err(unfit(format!("it has {has}, expected {wanted} at least")));
        }
        let queue = Mutex::new(device.queue()?);
        Ok(Self(Arc::new(Inner { device, queue, programs: Mutex::default() })))
    }

    /// The device's name in settings and messages.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.0.device.id()
    }

    /// Compiles what a recipe launches; each kernel is compiled once.
    ///
    /// # Errors
    /// [`Error::Device`] with the compiler's messages.
    pub fn prepare(&self, recipe: Recipe) -> Result<Prepared> {
        // A device here may take more than the cards do that a kernel must fit as well.
        let items = |kernel: &Kernel| kernel.group().iter().product::<usize>();
        if let Some(call) = recipe.calls().iter().find(|call| items(&call.kernel) > GROUP_MAX) {
            let (kernel, group) = (call.kernel.name(), call.kernel.group());
            let message = format!("kernel {kernel} has groups of {group:?}, at most {GROUP_MAX}");
            return Err(Error::invalid("prepare", message));
        }
        let programs = recipe.calls().iter().map(|call| self.program(&call.kernel));
        Ok(Prepared { programs: programs.collect::<Result<_>>()?, recipe })
    }

    fn program(&self, kernel: &Kernel) -> Result<Arc<dyn Program>> {
        if let Some(program) = lock(&self.0.programs).get(kernel) {
            return Ok(Arc::clone(program));
        }
        // Compiled without the lock: two threads may do it twice, none waits for another's.
        let program = self.0.device.compile(&kernel.source(), "")?;
        lock(&self.0.programs).insert(kernel.clone(), Arc::clone(&program));
        Ok(program)
    }

    /// Memory for a tensor; its contents are undefined.
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn alloc(&self, dtype: DType, shape: impl Into<Shape>) -> Result<DeviceTensor> {
        let shape = shape.into();
        let buffer = self.0.device.allocate(shape.byte_len(dtype)?)?;
        Ok(DeviceTensor { dtype, shape, buffer })
    }

    /// Copies a tensor to the device.
    ///
    /// # Errors
    /// As [`Accelerator::alloc`].
    pub fn upload(&self, tensor: &TensorView<'_>) -> Result<DeviceTensor> {
        let on_device = self.alloc(tensor.dtype(), tensor.shape().clone())?;
        lock(&self.0.queue).write(&*on_device.buffer, 0, tensor.as_bytes())?;
        Ok(on_device)
    }

    /// Copies a tensor from the device, once all that was launched before is done.
    ///
    /// # Errors
    /// A failure of an earlier launch, or out of host memory.
    pub fn download(&self, tensor: &DeviceTensor) -> Result<Tensor> {
        let mut bytes = vec![0; tensor.shape.byte_len(tensor.dtype)?];
        lock(&self.0.queue).read(&*tensor.buffer, 0, &mut bytes)?;
        Ok(Tensor::from_bytes(tensor.dtype, tensor.shape.clone(), &bytes)?)
    }

    /// Launches a recipe. Inputs and outputs have the types that it was made for.
    ///
    /// # Errors
    /// An argument that is missing, or a refusal of the driver.
    pub fn launch(
        &self,
        prepared: &Prepared,
        inputs: &[Option<&DeviceTensor>],
        outputs: &[Option<&DeviceTensor>],
    ) -> Result<()> {
        let sizes = |tensors: &[Option<&DeviceTensor>]| -> Vec<usize> {
            tensors.iter().map(|tensor| tensor.map_or(0, |tensor| tensor.buffer.bytes())).collect()
        };
        if !prepared.recipe.fits(&sizes(inputs), &sizes(outputs)) {
            let message = "inputs or outputs have not the types that it was made for";
            return Err(Error::invalid("launch", message));
        }
        let scratch: Vec<Arc<dyn Buffer>> = prepared
            .recipe
            .scratch()
            .iter()
            .map(|&bytes| self.0.device.allocate(bytes))
            .collect::<Result<_, _>>()?;
        for (call, program) in prepared.recipe.calls().iter().zip(&prepared.programs) {
            let argument = |argument: &Argument| argument.resolve(inputs, outputs, &scratch);
            let args: Vec<Arg<'_>> = call.arguments.iter().map(argument).collect::<Result<_>>()?;
            let local = call.kernel.group();
            let global = std::array::from_fn(|d| call.groups[d].saturating_mul(local[d]));
            let kernel = call.kernel.name();
            let launch =
                Launch { program: &**program, kernel, global, local: Some(local), args: &args };
            // SAFETY: a recipe promises that its kernels stay within buffers of the sizes just
            // checked, and that its arguments are those of their parameters.
            unsafe { lock(&self.0.queue).launch(&launch)? };
        }
        Ok(())
    }

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// A failure of an earlier launch.
    pub fn finish(&self) -> Result<()> {
        Ok(lock(&self.0.queue).finish()?)
    }
}

impl Argument {
    fn resolve<'a>(
        &self,
        inputs: &[Option<&'a DeviceTensor>],
        outputs: &[Option<&'a DeviceTensor>],
        scratch: &'a [Arc<dyn Buffer>],
    ) -> Result<Arg<'a>> {
        let tensor = |tensors: &[Option<&'a DeviceTensor>], what: &str, i: usize| {
            let tensor = tensors.get(i).copied().flatten();
            let missing = || Error::invalid("launch", format!("{what} {i} is missing"));
            tensor.map(|tensor| Arg::Buffer(&*tensor.buffer)).ok_or_else(missing)
        };
        match *self {
            Self::Input(i) => tensor(inputs, "input", i),
            Self::Output(i) => tensor(outputs, "output", i),
            Self::Scratch(i) => scratch
                .get(i)
                .map(|buffer| Arg::Buffer(&**buffer))
                .ok_or_else(|| Error::invalid("launch", format!("scratch {i} is missing"))),
            Self::U32(value) => Ok(Arg::U32(value)),
            Self::I32(value) => Ok(Arg::I32(value)),
            Self::F32(value) => Ok(Arg::F32(value)),
        }
    }
}
