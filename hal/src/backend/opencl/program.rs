//! A program compiled by an OpenCL driver, and how its kernels get their arguments.

use super::buffer::ClBuffer;
use super::shared::Shared;
use crate::backend::binary;
use crate::error::{Error, Result};
use crate::portable::with_prelude;
use crate::program::{Arg, Launch, Program};
use opencl3::error_codes::{CL_BUILD_PROGRAM_FAILURE, ClError};
use opencl3::kernel::Kernel;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The language version that the drivers for Polaris support.
const STANDARD: &str = "-cl-std=CL1.2";

/// A built program with one kernel object per name. A kernel object holds the arguments of the next
/// launch, so only one thread at a time may prepare a launch.
#[derive(Debug)]
pub(super) struct ClProgram {
    shared: Arc<Shared>,
    program: opencl3::program::Program,
    names: Vec<String>,
    kernels: Mutex<HashMap<String, ClKernel>>,
}

/// A kernel object, with what a launch would ask or tell the driver again.
#[derive(Debug)]
pub(super) struct ClKernel {
    pub(super) kernel: Kernel,
    /// The value that each parameter has from the launch before; `None` for one without a value.
    values: Vec<Option<Value>>,
}

/// The value of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// The number of the memory object, whose handle may be that of another one later.
    Memory(u64),
    /// The bits of a number, with its size: a driver checks both.
    Bits(u64, usize),
}

impl ClProgram {
    /// Compiles `source`.
    pub(super) fn build(shared: Arc<Shared>, source: &str, options: &str) -> Result<Self> {
        let device = shared.id;
        if let Some(at) = options.bytes().position(|byte| byte == 0) {
            let log = format!("the compiler options have a zero byte at {at}");
            return Err(Error::Compile { device, log });
        }
        if let Some(log) = shared.quirks.complaint(source) {
            return Err(Error::Compile { device, log });
        }
        let options = format!("{STANDARD} {options}");
        let mut program = opencl3::program::Program::create_from_source(
            &shared.context,
            &with_prelude(device.backend, source),
        )
        .map_err(shared.failed("clCreateProgramWithSource"))?;
        if let Err(error) = program.build(&[shared.device.id()], options.trim()) {
            let log = program.get_build_log(shared.device.id()).unwrap_or_default();
            return Err(refusal(&shared, error, log.trim_matches(['\0', ' ', '\n'])));
        }
        Self::of_built(shared, program)
    }

    /// Loads a binary that [`Program::binary`] returned.
    ///
    /// # Safety
    /// As [`crate::Device::load`].
    pub(super) unsafe fn load(shared: Arc<Shared>, binary: &[u8]) -> Result<Self> {
        let device = shared.id;
        let binary = binary::open(device, &shared.maker(), binary)?;
        let refuse = |call| {
            let failed = shared.failed(call);
            move |error| match failed(error) {
                Error::Driver { code, .. } => Error::Binary { device, reason: code },
                error => error,
            }
        };
        let devices = [shared.device.id()];
        // SAFETY: the device belongs to the context, and the caller promises that a driver made the
        // binary.
        let mut program = unsafe {
            opencl3::program::Program::create_from_binary(&shared.context, &devices, &[binary])
        }
        .map_err(refuse("clCreateProgramWithBinary"))?;
        program.build(&devices, STANDARD).map_err(refuse("clBuildProgram"))?;
        Self::of_built(Arc::clone(&shared), program)
    }

    fn of_built(shared: Arc<Shared>, program: opencl3::program::Program) -> Result<Self> {
        let names = program.kernel_names().split(';').map(|name| name.trim().to_owned());
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        let mut kernels = HashMap::new();
        for name in &names {
            let kernel = Kernel::create(&program, name).map_err(shared.failed("clCreateKernel"))?;
            let parameters = kernel.num_args().map_err(shared.failed("clGetKernelInfo"))?;
            let values = vec![None; parameters as usize];
            kernels.insert(name.clone(), ClKernel { kernel, values });
        }
        Ok(Self { shared, program, names, kernels: Mutex::new(kernels) })
    }

    /// The program behind `program`, if it was compiled by this opened device.
    pub(super) fn of<'a>(program: &'a dyn Program, shared: &Arc<Shared>) -> Result<&'a Self> {
        program
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "program", device: shared.id })
    }

    /// The kernels, locked while arguments are set and the kernel is launched.
    pub(super) fn kernels(&self) -> MutexGuard<'_, HashMap<String, ClKernel>> {
        // Each launch sets every argument that differs, so a half-prepared kernel does no harm.
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a failed build: [`Error::Compile`] if the driver blames the source.
fn refusal(shared: &Shared, error: ClError, log: &str) -> Error {
    let device = shared.id;
    // Some drivers report a faulty source by another code, but all of them leave a log.
    if error.0 != CL_BUILD_PROGRAM_FAILURE && log.is_empty() {
        return shared.failed("clBuildProgram")(error);
    }
    let log = if log.is_empty() { "the compiler gives no reason" } else { log };
    Error::Compile { device, log: log.to_owned() }
}

/// Sets the arguments of `kernel` that differ from the launch before.
///
/// # Safety
/// The arguments must have the types of the kernel's parameters.
pub(super) unsafe fn set_args(
    kernel: &mut ClKernel,
    launch: &Launch<'_>,
    shared: &Arc<Shared>,
) -> Result<()> {
    let ClKernel { kernel, values } = kernel;
    let (given, expected) = (launch.args.len(), values.len());
    if given != expected {
        return Err(launch.refusal(format!("{given} arguments given, expected {expected}")));
    }
    for ((index, arg), last) in (0u32..).zip(launch.args).zip(values) {
        let value = value(arg, shared)?;
        if *last == Some(value) {
            continue;
        }
        *last = None;
        // SAFETY: each value lives through the call, which copies it. The caller promises that its
        // type is the parameter's, and the driver checks the size.
        let set = unsafe {
            match arg {
                Arg::Buffer(buffer) => {
                    kernel.set_arg(index, &ClBuffer::of(*buffer, shared)?.handle())
                }
                Arg::U32(value) => kernel.set_arg(index, value),
                Arg::I32(value) => kernel.set_arg(index, value),
                Arg::U64(value) => kernel.set_arg(index, value),
                Arg::F32(value) => kernel.set_arg(index, value),
            }
        };
        set.map_err(|error| match shared.failed("clSetKernelArg")(error) {
            Error::Driver { code, .. } => {
                launch.refusal(format!("argument {index} is not accepted: {code}"))
            }
            error => error,
        })?;
        *last = Some(value);
    }
    Ok(())
}

/// The value of an argument.
fn value(arg: &Arg<'_>, shared: &Arc<Shared>) -> Result<Value> {
    Ok(match *arg {
        Arg::Buffer(buffer) => Value::Memory(ClBuffer::of(buffer, shared)?.memory.id),
        Arg::U32(value) => Value::Bits(u64::from(value), 4),
        Arg::I32(value) => Value::Bits(u64::from(value.cast_unsigned()), 4),
        Arg::U64(value) => Value::Bits(value, 8),
        Arg::F32(value) => Value::Bits(u64::from(value.to_bits()), 4),
    })
}

impl Program for ClProgram {
    fn kernels(&self) -> &[String] {
        &self.names
    }

    fn binary(&self) -> Option<Vec<u8>> {
        // The context has one device, so the program has one binary.
        let binary = self.program.get_binaries().ok()?.pop()?;
        (!binary.is_empty()).then(|| binary::seal(&self.shared.maker(), &binary))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
