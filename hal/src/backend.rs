//! The trait of backends, and the table of all of them: the only lines of the workspace that ask
//! for a backend's cargo feature.

pub(crate) mod cpu;
pub(crate) mod host;
pub(crate) mod null;

#[cfg(any(feature = "cuda", feature = "rocm", feature = "vulkan"))]
pub(crate) mod binary;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "vulkan"))]
pub(crate) mod grid;
#[cfg(feature = "rocm")]
pub(crate) mod opencl;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;

use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::Result;
use crate::telemetry::Telemetry;
use std::borrow::Cow;
use std::sync::Arc;

/// The families of devices. Every variant exists in every build, so that settings and errors can
/// name a backend that is not compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendKind {
    /// A recording device for tests; opened by name, never listed.
    Null,
    /// The host's processor.
    Cpu,
    /// OpenCL 1.2 devices: AMD cards through Mesa rusticl, ROCm or AMD's legacy driver.
    OpenCl,
    /// Vulkan 1.2 devices: AMD cards through Mesa RADV, and those of other vendors.
    Vulkan,
    /// NVIDIA devices.
    Cuda,
}

impl BackendKind {
    /// Every backend, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Null, Self::Cpu, Self::OpenCl, Self::Vulkan, Self::Cuda];

    /// The backend's line of the table.
    pub(crate) const fn line(self) -> &'static Line {
        // The lines stand in the order of the variants; a test compares them.
        &BACKENDS[self as usize]
    }
}

/// One line of the table.
pub(crate) struct Line {
    /// The family of devices.
    pub(crate) kind: BackendKind,
    /// The family's name in device ids, settings and messages.
    pub(crate) name: &'static str,
    /// The cargo feature that compiles the backend in.
    pub(crate) feature: &'static str,
    /// The backend, if this build has it.
    pub(crate) backend: Option<&'static dyn Backend>,
    /// The rank for `auto`, which prefers higher ones; `None` for devices that it never selects.
    pub(crate) rank: Option<u8>,
    /// The driver that the devices need, for people; `None` for devices that need none.
    pub(crate) driver: Option<&'static str>,
    /// The header that the compiler reads before a portable kernel; `None` for a backend that
    /// compiles no programs.
    pub(crate) prelude: Option<&'static str>,
}

/// Every backend, compiled in or not.
pub(crate) const BACKENDS: &[Line] = &[
    Line {
        kind: BackendKind::Null,
        name: "null",
        feature: "cpu",
        backend: Some(&null::Null),
        rank: None,
        driver: None,
        prelude: None,
    },
    Line {
        kind: BackendKind::Cpu,
        name: "cpu",
        feature: "cpu",
        backend: Some(&cpu::Cpu),
        rank: Some(0),
        driver: None,
        prelude: None,
    },
    Line {
        kind: BackendKind::OpenCl,
        name: "opencl",
        feature: "rocm",
        backend: OPENCL,
        rank: Some(1),
        driver: Some("the OpenCL driver"),
        prelude: Some(concat!(
            include_str!("portable/opencl.h"),
            include_str!("portable/shared.h")
        )),
    },
    Line {
        kind: BackendKind::Vulkan,
        name: "vulkan",
        feature: "vulkan",
        backend: VULKAN,
        rank: Some(2),
        driver: Some("the Vulkan driver"),
        // The compiler of the portable language reads it without a header.
        prelude: Some(""),
    },
    Line {
        kind: BackendKind::Cuda,
        name: "cuda",
        feature: "cuda",
        backend: CUDA,
        rank: Some(3),
        driver: Some("the NVIDIA driver"),
        prelude: Some(concat!(include_str!("portable/cuda.h"), include_str!("portable/shared.h"))),
    },
];

#[cfg(feature = "rocm")]
const OPENCL: Option<&dyn Backend> = Some(&opencl::OpenCl);
#[cfg(not(feature = "rocm"))]
const OPENCL: Option<&dyn Backend> = None;

#[cfg(feature = "vulkan")]
const VULKAN: Option<&dyn Backend> = Some(&vulkan::Vulkan);
#[cfg(not(feature = "vulkan"))]
const VULKAN: Option<&dyn Backend> = None;

#[cfg(feature = "cuda")]
const CUDA: Option<&dyn Backend> = Some(&cuda::Cuda);
#[cfg(not(feature = "cuda"))]
const CUDA: Option<&dyn Backend> = None;

/// A family of devices: it finds and opens them.
pub(crate) trait Backend: Sync {
    /// Looks for devices without opening them. It never panics and needs no library, driver or
    /// device to be present.
    fn probe(&self) -> Probe;

    /// Opens a device, without the self-test.
    ///
    /// # Errors
    /// [`crate::Error::NoDevice`] with the reason, or the driver's refusal.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>>;

    /// The sensor values of a found device, where the backend can read them.
    fn telemetry(&self, _found: &Found) -> Option<Telemetry> {
        None
    }
}

/// The result of a backend's search.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Probe {
    /// The devices, by ordinal.
    pub(crate) found: Vec<Found>,
    /// The OpenCL platforms found, including those without devices.
    pub(crate) platforms: Vec<Platform>,
    /// Why there are no devices.
    pub(crate) missing: Option<Missing>,
    /// Faults of the devices' drivers and libraries, for people.
    pub(crate) faults: Vec<Fault>,
}

/// A fault of a device's driver or libraries, with which the device still works.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a build with the processor only loads no driver library")]
pub(crate) struct Fault {
    /// The device's number in its family.
    pub(crate) ordinal: u32,
    /// The behaviour of the driver.
    pub(crate) reason: Cow<'static, str>,
    /// What a person can do.
    pub(crate) fix: &'static str,
}

/// An OpenCL driver as the loader lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a build with the processor only loads no driver library")]
pub(crate) struct Platform {
    /// The platform's own name.
    pub(crate) name: String,
    /// Why the driver may show no AMD card, if it is a driver for AMD cards.
    pub(crate) hides: Option<Hides>,
}

/// Why an installed OpenCL driver for AMD cards may show none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hides {
    /// Mesa's rusticl shows only the cards of the drivers that `RUSTICL_ENABLE` names.
    UnlessNamed,
    /// AMD's own driver shows cards older than Vega only where `ROC_ENABLE_PRE_VEGA` is set, and no
    /// card without the kernel's compute driver.
    PreVega,
    /// Mesa's Clover cannot drive the cards that models run on.
    All,
}

/// One device that a backend found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// The device's name for people.
    pub(crate) name: String,
    /// The device's capabilities.
    pub(crate) caps: Caps,
}

impl Found {
    /// Whether it is a card that AMD made, or the graphics part of such a processor.
    pub(crate) fn is_amd_gpu(&self) -> bool {
        let vendor = self.caps.vendor.to_ascii_lowercase();
        self.caps.kind == DeviceKind::Gpu
            && (vendor.contains("amd") || vendor.contains("advanced micro"))
    }
}

/// Why a backend has no devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a build with the processor only loads no driver library")]
pub(crate) enum Missing {
    /// The driver library cannot be loaded.
    Library(String),
    /// The library is installed but finds no driver.
    Driver(String),
    /// The drivers are installed but find no device.
    Devices(String),
}

impl Missing {
    /// The reason as a sentence without its full stop.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Library(reason) | Self::Driver(reason) | Self::Devices(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_family_once_and_in_order() {
        let kinds: Vec<BackendKind> = BACKENDS.iter().map(|line| line.kind).collect();
        assert_eq!(kinds, BackendKind::ALL);
        for kind in BackendKind::ALL {
            assert_eq!(kind.line().kind, kind);
            assert_eq!(kind.line().name.parse::<BackendKind>(), Ok(kind));
        }
    }
}
