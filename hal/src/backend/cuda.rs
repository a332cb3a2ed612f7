//! NVIDIA devices through the driver library, which is loaded at run time. Without the library the
//! host has no such devices.

mod blas;
mod buffer;
mod device;
mod event;
mod nvrtc;
mod pinned;
mod program;
mod queue;
mod shared;
mod telemetry;

use crate::backend::{Backend, BackendKind, Found, Missing, Probe};
use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::{DeviceId, PciAddress};
use crate::telemetry::Telemetry;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::sync::Arc;

/// The driver calls of this backend. The bindings panic on a call that the library lacks, so a stub
/// or a very old driver is refused before the first call.
const CALLS: [&str; 36] = [
    "cuInit",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuLaunchKernel",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuStreamWaitEvent",
    "cuMemHostAlloc",
    "cuMemFreeHost",
];

/// The table entry of CUDA.
pub(crate) struct Cuda;

impl Backend for Cuda {
    fn probe(&self) -> Probe {
        match enumerate() {
            Ok(found) => Probe { found, ..Probe::default() },
            Err(missing) => Probe { missing: Some(missing), ..Probe::default() },
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        let id = DeviceId::new(BackendKind::Cuda, ordinal);
        let absent = |reason: String| Error::NoDevice { device: id, reason };
        let mut found = enumerate().map_err(|missing| absent(missing.reason().to_owned()))?;
        let count = found.len();
        let at = usize::try_from(ordinal).unwrap_or(usize::MAX);
        if at >= count {
            return Err(absent(match count {
                1 => "there is one CUDA device, cuda:0".to_owned(),
                _ => format!("there are {count} CUDA devices, counted from cuda:0"),
            }));
        }
        Ok(Arc::new(device::CudaDevice::open(id, found.swap_remove(at))?))
    }

    fn telemetry(&self, found: &Found) -> Option<Telemetry> {
        telemetry::read(found.caps.pci?)
    }
}

/// All devices.
fn enumerate() -> Result<Vec<Found>, Missing> {
    let absent = "the NVIDIA driver library (libcuda.so.1) is not installed";
    // SAFETY: the search for the library runs its initialisers, as loading it does.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing::Library(absent.to_owned()));
    }
    // SAFETY: the library is present, as this call requires; the symbols are only looked up here,
    // not called.
    let lacking = unsafe {
        let library = sys::culib();
        CALLS
            .into_iter()
            .find(|name| library.get::<unsafe extern "C" fn()>(name.as_bytes()).is_err())
    };
    if let Some(name) = lacking {
        return Err(Missing::Driver(format!("the NVIDIA driver is too old: it has no {name}")));
    }
    let refuse = |call: &str| {
        let call = call.to_owned();
        move |error| Missing::Driver(format!("the NVIDIA driver refuses {call}: {}", code(error)))
    };
    result::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            Missing::Devices("the NVIDIA driver sees no device".to_owned())
        }
        _ => refuse("cuInit")(error),
    })?;
    let count = result::device::get_count().map_err(refuse("cuDeviceGetCount"))?;
    let mut found = Vec::new();
    for ordinal in 0..count {
        let device = result::device::get(ordinal).map_err(refuse("cuDeviceGet"))?;
        found.push(describe(device));
    }
    if found.is_empty() {
        return Err(Missing::Devices("the NVIDIA driver sees no device".to_owned()));
    }
    Ok(found)
}

/// Name and capabilities of a device.
fn describe(device: sys::CUdevice) -> Found {
    // SAFETY: the device comes from the driver's own list.
    let attribute = |which: Attribute| unsafe { result::device::get_attribute(device, which) }.ok();
    let number = |which| attribute(which).and_then(|value| u32::try_from(value).ok());
    // SAFETY: as above.
    let memory_bytes = unsafe { result::device::total_mem(device) }.ok().map(|bytes| bytes as u64);
    let byte = |which| number(which).and_then(|value| u8::try_from(value).ok());
    let pci = byte(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID).and_then(|bus| {
        Some(PciAddress {
            domain: number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            bus,
            device: byte(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            function: 0,
        })
    });
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).unwrap_or(0);
    let minor = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).unwrap_or(0);
    let caps = Caps {
        kind: DeviceKind::Gpu,
        vendor: "NVIDIA".to_owned(),
        driver: driver_name(),
        pci,
        compute_units: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unwrap_or(0),
        clock_mhz_max: number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map(|khz| khz / 1000),
        memory_bytes,
        allocation_bytes_max: memory_bytes,
        alignment_bytes: 256,
        local_memory_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)
            .map_or(0, u64::from),
        work_group_max: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK).unwrap_or(0),
        wave: number(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).unwrap_or(0),
        unified_memory: number(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED) == Some(1),
        fp16: (major, minor) >= (5, 3),
        fp64: true,
        // Whether the libraries for both are installed is known only when the device is opened.
        programs: false,
        gemm: false,
        features: vec![format!("sm_{major}{minor}")],
    };
    let name = result::device::get_name(device).unwrap_or_else(|_| "NVIDIA device".to_owned());
    Found { name, caps }
}

/// The newest CUDA version that the driver supports, as 1000 · major + 10 · minor; 0 if it reports
/// none.
fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the call writes one integer into the given place.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    if answer.result().is_ok() { version } else { 0 }
}

fn driver_name() -> String {
    match driver_version() {
        0 => "CUDA".to_owned(),
        version => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
    }
}

/// The driver's name of an error.
fn code(error: DriverError) -> String {
    match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("error {}", error.0 as u32),
    }
}

/// Whether the driver refuses every call in the context after this error.
fn is_loss(error: DriverError) -> bool {
    use sys::CUresult::*;
    matches!(
        error.0,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

/// An error of a driver call.
fn driver(device: DeviceId, call: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Driver { device, call, code: code(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_from_refusals() {
        use sys::CUresult as Code;
        for (code, lost) in [
            (Code::CUDA_ERROR_ILLEGAL_ADDRESS, true),
            (Code::CUDA_ERROR_LAUNCH_FAILED, true),
            (Code::CUDA_ERROR_ECC_UNCORRECTABLE, true),
            (Code::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, false),
            (Code::CUDA_ERROR_OUT_OF_MEMORY, false),
            (Code::CUDA_ERROR_INVALID_VALUE, false),
            (Code::CUDA_ERROR_NOT_READY, false),
        ] {
            assert_eq!(is_loss(DriverError(code)), lost, "{code:?}");
        }
    }
}
