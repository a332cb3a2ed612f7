//! A program on an NVIDIA device, and the packing of its kernels' arguments.

use super::buffer::CudaBuffer;
use super::library::done;
use super::nvrtc::{Image, Signature};
use super::shared::Shared;
use super::stream::Stream;
use crate::backend::binary;
use crate::error::{Error, Result};
use crate::program::{Arg, Launch, Program};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// The size of a work-group if the caller gives none: enough to hide latencies on any architecture.
const GROUP: usize = 256;

/// The driver's limits of a grid's dimensions in work-groups.
const GROUPS_MAX: [usize; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// A loaded module.
#[derive(Debug)]
pub(super) struct CudaProgram {
    shared: Arc<Shared>,
    module: CUmodule,
    /// The image that the module was loaded from.
    image: Image,
    names: Vec<String>,
    kernels: HashMap<String, Kernel>,
}

/// One kernel of a module.
#[derive(Debug)]
struct Kernel {
    function: CUfunction,
    /// The sizes of the parameters in bytes.
    sizes: Vec<usize>,
    /// The maximum number of work-items in a work-group.
    group_max: usize,
}

// SAFETY: module and functions are the driver's handles. Any thread may use them if their context
// is its current one, and every use binds it first.
unsafe impl Send for CudaProgram {}
// SAFETY: as above; nothing here changes after the program is made.
unsafe impl Sync for CudaProgram {}

impl CudaProgram {
    /// Compiles `source`.
    pub(super) fn build(shared: Arc<Shared>, source: &str, options: &str) -> Result<Self> {
        let (compiler, target) = shared.compiler()?;
        shared.bind()?;
        let device = shared.id;
        let image = compiler
            .compile(*target, source, options)
            .map_err(|log| Error::Compile { device, log })?;
        // SAFETY: the compiler has just made the image.
        unsafe { Self::put(shared, image) }
    }

    /// Loads a binary that [`Program::binary`] returned.
    ///
    /// # Safety
    /// As [`crate::Device::load`].
    pub(super) unsafe fn load(shared: Arc<Shared>, binary: &[u8]) -> Result<Self> {
        // Without a compiler the device's arithmetic is untested.
        shared.compiler()?;
        shared.bind()?;
        let device = shared.id;
        let image =
            Image::read(binary::open(device, &shared.maker(), binary)?).ok_or_else(|| {
                let reason = "it is no image of kernels".to_owned();
                Error::Binary { device, reason }
            })?;
        // SAFETY: the caller promises that the compiler made the image.
        unsafe { Self::put(shared, image) }.map_err(|error| match error {
            Error::Driver { code, .. } => Error::Binary { device, reason: code },
            error => error,
        })
    }

    /// Puts an image on the device, whose context is bound.
    ///
    /// # Safety
    /// The compiler must have made the image.
    unsafe fn put(shared: Arc<Shared>, image: Image) -> Result<Self> {
        let mut module = std::ptr::null_mut();
        let code = image.code.as_ptr().cast();
        // SAFETY: the code comes from the compiler: machine code, which contains its size, or PTX
        // that ends in a zero byte. The driver copies it.
        done(unsafe { (shared.driver.cuModuleLoadData)(&raw mut module, code) })
            .map_err(shared.failed("cuModuleLoadData"))?;
        // From here on, dropping the program unloads the module, also after a failure.
        let (names, kernels) = (Vec::new(), HashMap::new());
        let mut program = Self { shared, module, image, names, kernels };
        for at in 0..program.image.kernels.len() {
            let Signature { name, sizes } = program.image.kernels[at].clone();
            let failed = |call| program.shared.failed(call);
            let c_name = CString::new(name.as_str()).unwrap_or_default();
            let mut function = std::ptr::null_mut();
            let driver = &program.shared.driver;
            // SAFETY: the module is loaded, and the name a string.
            done(unsafe {
                (driver.cuModuleGetFunction)(&raw mut function, module, c_name.as_ptr())
            })
            .map_err(failed("cuModuleGetFunction"))?;
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
            let mut most = 0;
            // SAFETY: the function is the module's; one integer is written.
            done(unsafe { (driver.cuFuncGetAttribute)(&raw mut most, attribute, function) })
                .map_err(failed("cuFuncGetAttribute"))?;
            let group_max = usize::try_from(most).unwrap_or(0);
            program.kernels.insert(name.clone(), Kernel { function, sizes, group_max });
            program.names.push(name);
        }
        Ok(program)
    }

    /// The program behind `program`, if it was made by this opened device.
    pub(super) fn of<'a>(program: &'a dyn Program, shared: &Arc<Shared>) -> Result<&'a Self> {
        program
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "program", device: shared.id })
    }

    /// Queues `launch`, which must be a launch of this program.
    ///
    /// # Safety
    /// As [`crate::Queue::launch`]; the stream must be the opened device's and its context bound.
    pub(super) unsafe fn launch(&self, launch: &Launch<'_>, stream: &Stream) -> Result<()> {
        let kernel = self.kernels.get(launch.kernel).ok_or_else(|| {
            let names = self.names.join(", ");
            launch.refusal(format!("the program has no such kernel, only {names}"))
        })?;
        launch.check_grid(kernel.group_max)?;
        let local = launch.local.unwrap_or_else(|| choose(launch.global, kernel.group_max));
        let groups = groups(launch, local)?;
        let items = local.map(|items| u32::try_from(items).unwrap_or(u32::MAX));
        let mut values = pack(launch, &kernel.sizes, &self.shared)?;
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        // SAFETY: the function belongs to this module, which lives until the context has caught up.
        // The pointers are to one value per parameter, each at least as large as its parameter, and
        // the call copies the values. The caller promises the rest.
        let launched = done(unsafe {
            (self.shared.driver.cuLaunchKernel)(
                kernel.function,
                groups[0],
                groups[1],
                groups[2],
                items[0],
                items[1],
                items[2],
                0,
                stream.handle,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        });
        launched.map_err(|status| match self.shared.failed("cuLaunchKernel")(status) {
            Error::Driver { code, .. } => launch.refusal(code),
            error => error,
        })
    }
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        // Kernels of the module may still run on any stream. A context that cannot be bound is
        // lost, and so is one whose commands failed, together with its modules.
        if self.shared.bind().and_then(|()| self.shared.synchronize()).is_ok() {
            // SAFETY: the module was loaded once, and none of its kernels runs.
            let status = unsafe { (self.shared.driver.cuModuleUnload)(self.module) };
            self.shared.dropped("cuModuleUnload", status);
        }
    }
}

impl Program for CudaProgram {
    fn kernels(&self) -> &[String] {
        &self.names
    }

    fn binary(&self) -> Option<Vec<u8>> {
        Some(binary::seal(&self.shared.maker(), &self.image.write()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The arguments as the driver takes them: each in the first bytes of a word. CUDA hosts are
/// little-endian, so a word's first bytes hold its low bits.
fn pack(launch: &Launch<'_>, sizes: &[usize], shared: &Arc<Shared>) -> Result<Vec<u64>> {
    let (given, expected) = (launch.args.len(), sizes.len());
    if given != expected {
        return Err(launch.refusal(format!("{given} arguments given, expected {expected}")));
    }
    let mut values = Vec::with_capacity(given);
    for (index, (arg, &expected)) in launch.args.iter().zip(sizes).enumerate() {
        let (value, size) = match arg {
            Arg::Buffer(buffer) => (CudaBuffer::of(*buffer, shared)?.address(), 8),
            Arg::U32(value) => (u64::from(*value), 4),
            Arg::I32(value) => (u64::from(value.cast_unsigned()), 4),
            Arg::U64(value) => (*value, 8),
            Arg::F32(value) => (u64::from(value.to_bits()), 4),
        };
        if size != expected {
            let reason = format!("argument {index} has {size} bytes, expected {expected}");
            return Err(launch.refusal(reason));
        }
        values.push(value);
    }
    Ok(values)
}

/// The size of a work-group along the first dimension: the largest that divides the grid.
fn choose(global: [usize; 3], most: usize) -> [usize; 3] {
    let most = most.min(GROUP);
    let first = (1..=most).rev().find(|&items| global[0].is_multiple_of(items));
    [first.unwrap_or(1), 1, 1]
}

/// The grid in work-groups.
fn groups(launch: &Launch<'_>, local: [usize; 3]) -> Result<[u32; 3]> {
    let mut groups = [0; 3];
    for axis in 0..3 {
        let count = launch.global[axis] / local[axis];
        let fits = u32::try_from(count).ok().filter(|_| count <= GROUPS_MAX[axis]);
        groups[axis] = fits.ok_or_else(|| {
            let most = GROUPS_MAX[axis];
            launch.refusal(format!("dimension {axis} has {count} work-groups, at most {most} fit"))
        })?;
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_groups_divide_the_grid() {
        for (length, most, expected) in
            [(1024, 1024, 256), (1000, 1024, 250), (1009, 1024, 1), (7, 1024, 7), (64, 32, 32)]
        {
            assert_eq!(choose([length, 5, 2], most), [expected, 1, 1], "{length}");
        }
    }
}
