//! OpenCL 1.2 devices through whatever library the host has: it is loaded at run time, and a host
//! without one is a host without these devices.

mod buffer;
mod device;
mod event;
mod info;
mod pinned;
mod program;
mod queue;

use crate::backend::{Backend, Found, Missing, Probe};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::{BackendKind, DeviceId};
use opencl3::error_codes::{ClError, DLOPEN_FUNCTION_NOT_AVAILABLE, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;
use std::sync::{Arc, Mutex, PoisonError};

/// What the ICD loader answers when no driver is installed (`cl_khr_icd`).
const PLATFORM_NOT_FOUND: i32 = -1001;

/// The table entry of OpenCL.
pub(crate) struct OpenCl;

impl Backend for OpenCl {
    fn probe(&self) -> Probe {
        match enumerate() {
            Ok((devices, platforms)) => {
                let found: Vec<Found> = devices.iter().map(info::describe).collect();
                let missing = found.is_empty().then(|| no_devices(&platforms));
                Probe { found, platforms, missing }
            }
            Err(missing) => Probe { missing: Some(missing), ..Probe::default() },
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        let id = DeviceId::new(BackendKind::OpenCl, ordinal);
        let absent = |reason: String| Error::NoDevice { device: id, reason };
        let (devices, platforms) =
            enumerate().map_err(|missing| absent(missing.reason().to_owned()))?;
        let device = usize::try_from(ordinal).ok().and_then(|at| devices.get(at));
        let device = device.ok_or_else(|| match devices.len() {
            0 => absent(no_devices(&platforms).reason().to_owned()),
            1 => absent("there is one OpenCL device, opencl:0".to_owned()),
            count => absent(format!("there are {count} OpenCL devices, counted from opencl:0")),
        })?;
        Ok(Arc::new(device::ClDevice::open(id, device)?))
    }
}

/// Why there is no device although the library is there.
fn no_devices(platforms: &[String]) -> Missing {
    if platforms.is_empty() {
        return Missing::Driver("no OpenCL driver is installed".to_owned());
    }
    let names = platforms.join(", ");
    Missing::Devices(format!("the OpenCL platforms here ({names}) show no device"))
}

/// One device of one platform.
struct Entry {
    platform: String,
    device: opencl3::device::Device,
}

/// Drivers set themselves up when they are first asked for devices, and PoCL for one crashes if a
/// second thread asks meanwhile. The drivers are one per process, so the lock is too.
static DRIVER_SETUP: Mutex<()> = Mutex::new(());

/// All devices, and the names of all platforms. Processors come last, so that `opencl:0` is a GPU
/// where there is one; otherwise the order is the loader's.
fn enumerate() -> Result<(Vec<Entry>, Vec<String>), Missing> {
    // The lock guards no data, so a panic that poisoned it left nothing half done.
    let _setup = DRIVER_SETUP.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = match get_platforms() {
        Ok(platforms) => platforms,
        Err(ClError(PLATFORM_NOT_FOUND)) => Vec::new(),
        Err(ClError(DLOPEN_RUNTIME_LOAD_FAILED)) => {
            return Err(Missing::Library(
                "the OpenCL library (libOpenCL.so.1) is not installed".to_owned(),
            ));
        }
        Err(ClError(DLOPEN_FUNCTION_NOT_AVAILABLE)) => {
            return Err(Missing::Library(
                "the library loaded for OpenCL is no OpenCL library; check OPENCL_DYLIB_PATH"
                    .to_owned(),
            ));
        }
        Err(error) => return Err(Missing::Driver(format!("OpenCL cannot list drivers: {error}"))),
    };
    let mut names = Vec::new();
    let mut devices = Vec::new();
    for platform in platforms {
        let name = platform.name().unwrap_or_else(|_| "unnamed platform".to_owned());
        // A platform that fails or has no devices must not hide those that work.
        let ids = platform.get_devices(opencl3::device::CL_DEVICE_TYPE_ALL).unwrap_or_default();
        devices.extend(ids.into_iter().map(|id| Entry {
            platform: name.trim().to_owned(),
            device: opencl3::device::Device::new(id),
        }));
        names.push(name.trim().to_owned());
    }
    devices.sort_by_key(|entry| info::kind(&entry.device) == crate::caps::DeviceKind::Cpu);
    Ok((devices, names))
}

/// Whether an error code means that the device is lost. Some codes say so to any call; when a call
/// `waited` for commands, running out of resources is how drivers tell of a command that hung or
/// reached beyond its memory.
fn is_loss(error: &ClError, waited: bool) -> bool {
    use opencl3::error_codes::{
        CL_CONTEXT_TERMINATED_KHR, CL_DEVICE_NOT_AVAILABLE, CL_INVALID_COMMAND_QUEUE,
        CL_INVALID_CONTEXT, CL_OUT_OF_RESOURCES,
    };
    /// NVIDIA's code for a kernel that reached beyond its memory.
    const ILLEGAL_ACCESS_NVIDIA: i32 = -9999;
    // Queues and contexts are ours and were valid once.
    let fatal = [
        CL_DEVICE_NOT_AVAILABLE,
        CL_INVALID_COMMAND_QUEUE,
        CL_INVALID_CONTEXT,
        CL_CONTEXT_TERMINATED_KHR,
        ILLEGAL_ACCESS_NVIDIA,
    ];
    fatal.contains(&error.0) || waited && error.0 == CL_OUT_OF_RESOURCES
}

/// Whether an error code means that memory ran out; drivers use all three.
fn is_out_of_memory(error: &ClError) -> bool {
    use opencl3::error_codes::{
        CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES,
    };
    [CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES]
        .contains(&error.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_from_refusals() {
        for (code, at_any_call, after_waiting) in [
            (-2, true, true),
            (-4, false, false),
            (-5, false, true),
            (-34, true, true),
            (-36, true, true),
            (-54, false, false),
            (-1121, true, true),
            (-9999, true, true),
        ] {
            let answers = [false, true].map(|waited| is_loss(&ClError(code), waited));
            assert_eq!(answers, [at_any_call, after_waiting], "{code}");
        }
    }
}
