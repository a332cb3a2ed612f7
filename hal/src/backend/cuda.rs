//! NVIDIA devices through the driver library, which is loaded at run time. Without the library the
//! host has no such devices.

mod blas;
mod buffer;
mod device;
mod driver;
mod event;
mod libraries;
mod library;
mod nvrtc;
mod pinned;
mod program;
mod queue;
mod shared;
mod stream;
mod telemetry;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, BackendKind, Fault, Found, Missing, Probe};
use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::{DeviceId, PciAddress};
use crate::telemetry::Telemetry;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use driver::Driver;
use libraries::Libraries;
use library::done;
use std::ffi::CStr;
use std::sync::Arc;

/// The table entry of CUDA.
pub(crate) struct Cuda;

impl Backend for Cuda {
    fn probe(&self) -> Probe {
        match enumerate() {
            Ok((_, all)) => {
                let faults = (0u32..).zip(&all).filter_map(|(at, entry)| entry.fault(at)).collect();
                let found = all.into_iter().map(|entry| entry.found).collect();
                Probe { found, faults, ..Probe::default() }
            }
            Err(missing) => Probe { missing: Some(missing), ..Probe::default() },
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        let id = DeviceId::new(BackendKind::Cuda, ordinal);
        let absent = |reason: String| Error::NoDevice { device: id, reason };
        let (driver, mut found) =
            enumerate().map_err(|missing| absent(missing.reason().to_owned()))?;
        let count = found.len();
        let at = usize::try_from(ordinal).unwrap_or(usize::MAX);
        if at >= count {
            return Err(absent(match count {
                1 => "there is one CUDA device, cuda:0".to_owned(),
                _ => format!("there are {count} CUDA devices, counted from cuda:0"),
            }));
        }
        Ok(Arc::new(device::CudaDevice::open(id, driver, found.swap_remove(at))?))
    }

    fn telemetry(&self, found: &Found) -> Option<Telemetry> {
        telemetry::read(found.caps.pci?)
    }
}

/// One device of the driver.
struct Entry {
    device: CUdevice,
    libraries: Libraries,
    found: Found,
}

impl Entry {
    /// Describes a device of a driver, whose part in the kernel has this version if it is known.
    fn of(driver: &Driver, device: CUdevice, of_kernel: Option<&str>) -> Self {
        let (major, minor) = architecture_of(driver, device);
        let libraries = Libraries::load(10 * major + minor, driver);
        let mut found = describe(driver, device);
        found.caps.driver = libraries.versions(driver, of_kernel);
        found.caps.programs = libraries.compiler.is_ok();
        found.caps.gemm = libraries.blas.is_ok();
        Self { device, libraries, found }
    }

    /// What slows the device's kernels down; one without kernels has a reason of its own.
    fn fault(&self, ordinal: u32) -> Option<Fault> {
        let reason = self.libraries.blas.as_ref().err().filter(|_| self.found.caps.programs)?;
        let reason = format!("matrix products run by slower kernels: {reason}").into();
        Some(Fault { ordinal, reason, fix: blas::functions::INSTALL })
    }
}

/// The driver and all its devices.
fn enumerate() -> Result<(Driver, Vec<Entry>), Missing> {
    let driver = Driver::load()?;
    let mut count = 0;
    // SAFETY: the call writes one integer into the given place.
    done(unsafe { (driver.cuDeviceGetCount)(&raw mut count) })
        .map_err(driver.refusal("cuDeviceGetCount"))?;
    let of_kernel = libraries::kernel_driver();
    let mut found = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: as above.
        done(unsafe { (driver.cuDeviceGet)(&raw mut device, ordinal) })
            .map_err(driver.refusal("cuDeviceGet"))?;
        found.push(Entry::of(&driver, device, of_kernel.as_deref()));
    }
    if found.is_empty() {
        return Err(Missing::Devices("the NVIDIA driver sees no device".to_owned()));
    }
    Ok((driver, found))
}

/// An attribute of a device, if it is a number from 0.
fn attribute(driver: &Driver, device: CUdevice, which: Attribute) -> Option<u32> {
    let mut value = 0;
    // SAFETY: the device comes from the driver's own list; one integer is written.
    done(unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, which, device) }).ok()?;
    u32::try_from(value).ok()
}

/// The device's compute capability, major and minor; zeros if the driver reports none.
fn architecture_of(driver: &Driver, device: CUdevice) -> (u32, u32) {
    let number = |which| attribute(driver, device, which).unwrap_or(0);
    (
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

fn name_of(driver: &Driver, device: CUdevice) -> Option<String> {
    let mut name = [0u8; 256];
    // SAFETY: the call writes a string of at most 256 bytes with its end.
    done(unsafe { (driver.cuDeviceGetName)(name.as_mut_ptr().cast(), 256, device) }).ok()?;
    Some(CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy().into_owned())
}

/// Name and capabilities of a device, without those that depend on libraries.
fn describe(driver: &Driver, device: CUdevice) -> Found {
    let number = |which| attribute(driver, device, which);
    let mut bytes = 0;
    // SAFETY: the device comes from the driver's own list; one number is written.
    let memory = done(unsafe { (driver.cuDeviceTotalMem_v2)(&raw mut bytes, device) });
    let memory_bytes = memory.ok().map(|()| bytes as u64);
    let byte = |which| number(which).and_then(|value| u8::try_from(value).ok());
    let pci = byte(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID).and_then(|bus| {
        Some(PciAddress {
            domain: number(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            bus,
            device: byte(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            function: 0,
        })
    });
    let (major, minor) = architecture_of(driver, device);
    let caps = Caps {
        kind: DeviceKind::Gpu,
        vendor: "NVIDIA".to_owned(),
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
        features: vec![format!("sm_{major}{minor}")],
        // The driver's versions, programs and products depend on the libraries.
        ..Caps::default()
    };
    let name = name_of(driver, device).unwrap_or_else(|| "NVIDIA device".to_owned());
    Found { name, caps }
}
