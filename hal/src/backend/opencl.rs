//! OpenCL 1.2 devices through the host's OpenCL library, which is loaded at run time. Without the
//! library the host has no such devices.

mod buffer;
mod codes;
mod device;
mod event;
mod info;
mod memory;
mod pinned;
mod program;
mod queue;
mod quirks;
mod shared;

use crate::backend::{Backend, BackendKind, Found, Missing, Platform, Probe};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use opencl3::error_codes::{ClError, DLOPEN_FUNCTION_NOT_AVAILABLE, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;
use quirks::{Quirk, Quirks};
use std::sync::{Arc, Mutex, PoisonError};

/// The ICD loader's error code when no driver is installed (`cl_khr_icd`).
const PLATFORM_NOT_FOUND: i32 = -1001;

/// The table entry of OpenCL.
pub(crate) struct OpenCl;

impl Backend for OpenCl {
    fn probe(&self) -> Probe {
        match enumerate() {
            Ok((devices, platforms)) => {
                let found: Vec<Found> = devices.iter().map(info::describe).collect();
                let missing = found.is_empty().then(|| no_devices(&platforms));
                Probe { found, platforms, missing, ..Probe::default() }
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

/// Why an installed library shows no device.
fn no_devices(platforms: &[Platform]) -> Missing {
    if platforms.is_empty() {
        return Missing::Driver("no OpenCL driver is installed".to_owned());
    }
    let names: Vec<&str> = platforms.iter().map(|platform| platform.name.as_str()).collect();
    let names = names.join(", ");
    Missing::Devices(format!("the OpenCL platforms here ({names}) show no device"))
}

/// One device of one platform.
struct Entry {
    platform: String,
    device: opencl3::device::Device,
}

/// Held while the loader initialises itself, and while drivers with [`Quirk::SetupRaces`] do. The
/// lock is global because loader and drivers are one per process.
static DRIVER_SETUP: Mutex<()> = Mutex::new(());

/// All devices, and all platforms. Processors come last, so that `opencl:0` is a GPU if there is
/// one; otherwise the loader's order is kept.
fn enumerate() -> Result<(Vec<Entry>, Vec<Platform>), Missing> {
    // The lock guards no data, so a panic that poisoned it left nothing half done.
    let setup = DRIVER_SETUP.lock().unwrap_or_else(PoisonError::into_inner);
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
    let (mut seen, mut races) = (Vec::new(), false);
    for platform in &platforms {
        let name = platform.name().unwrap_or_else(|_| "unnamed platform".to_owned());
        let quirks = Quirks::of(&name, None);
        races |= quirks.has(Quirk::SetupRaces);
        seen.push(Platform { name: name.trim().to_owned(), hides: quirks.hides() });
    }
    let _setup = races.then_some(setup);
    let mut devices = Vec::new();
    for (platform, Platform { name, .. }) in platforms.iter().zip(&seen) {
        // A platform that fails or has no devices must not hide those that work.
        let ids = platform.get_devices(opencl3::device::CL_DEVICE_TYPE_ALL).unwrap_or_default();
        devices.extend(
            ids.into_iter().map(|id| Entry {
                platform: name.clone(),
                device: opencl3::device::Device::new(id),
            }),
        );
    }
    devices.sort_by_key(|entry| info::kind(&entry.device) == crate::caps::DeviceKind::Cpu);
    Ok((devices, seen))
}
