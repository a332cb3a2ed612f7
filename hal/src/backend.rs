//! What a backend is, and the table of all of them: the only lines of the workspace that ask for
//! a backend's cargo feature.

pub(crate) mod cpu;
pub(crate) mod host;
pub(crate) mod null;

#[cfg(any(feature = "cuda", feature = "rocm"))]
pub(crate) mod binary;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", feature = "rocm"))]
pub(crate) mod grid;
#[cfg(feature = "rocm")]
pub(crate) mod opencl;

use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// The families of devices. Every variant exists in every build, so that settings and errors can
/// speak of a backend that is not compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendKind {
    /// A recording device for tests; opened by name, never listed.
    Null,
    /// The host's processor.
    Cpu,
    /// OpenCL 1.2 devices: AMD cards through Mesa rusticl, ROCm or AMD's legacy driver.
    OpenCl,
    /// NVIDIA devices.
    Cuda,
}

impl BackendKind {
    /// Every backend, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Null, Self::Cpu, Self::OpenCl, Self::Cuda];

    /// The line of the table about it.
    pub(crate) const fn line(self) -> &'static Line {
        // The lines stand in the order of the variants; a test compares them.
        &BACKENDS[self as usize]
    }
}

/// One line of the table.
pub(crate) struct Line {
    /// The family of devices.
    pub(crate) kind: BackendKind,
    /// Its name in device ids, settings and messages.
    pub(crate) name: &'static str,
    /// The cargo feature that brings it.
    pub(crate) feature: &'static str,
    /// The backend, if this build has it.
    pub(crate) backend: Option<&'static dyn Backend>,
    /// What `auto` prefers has more of it; `None` for devices that it never takes.
    pub(crate) rank: Option<u8>,
    /// The driver that its devices need, for people; `None` for those that need none.
    pub(crate) driver: Option<&'static str>,
    /// What its compiler reads before a portable kernel; `None` for one that compiles no programs.
    pub(crate) prelude: Option<&'static str>,
}

/// Every backend there is, compiled in or not.
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
        kind: BackendKind::Cuda,
        name: "cuda",
        feature: "cuda",
        backend: CUDA,
        rank: Some(2),
        driver: Some("the NVIDIA driver"),
        prelude: Some(concat!(include_str!("portable/cuda.h"), include_str!("portable/shared.h"))),
    },
];

#[cfg(feature = "rocm")]
const OPENCL: Option<&dyn Backend> = Some(&opencl::OpenCl);
#[cfg(not(feature = "rocm"))]
const OPENCL: Option<&dyn Backend> = None;

#[cfg(feature = "cuda")]
const CUDA: Option<&dyn Backend> = Some(&cuda::Cuda);
#[cfg(not(feature = "cuda"))]
const CUDA: Option<&dyn Backend> = None;

/// A family of devices: what it finds and how it opens one.
pub(crate) trait Backend: Sync {
    /// Looks for devices without opening them. It never panics and needs no library, driver or
    /// device to be present.
    fn probe(&self) -> Probe;

    /// Opens a device, without the self-test.
    ///
    /// # Errors
    /// [`crate::Error::NoDevice`] with the reason, or what the driver refused.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>>;

    /// What the sensors of a found device say, where the backend can ask them.
    fn telemetry(&self, _found: &Found) -> Option<Telemetry> {
        None
    }
}

/// What a backend found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Probe {
    /// The devices, by ordinal.
    pub(crate) found: Vec<Found>,
    /// The OpenCL platforms seen, those without devices too.
    pub(crate) platforms: Vec<Platform>,
    /// Why there are no devices.
    pub(crate) missing: Option<Missing>,
}

/// An OpenCL driver as its loader lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a build with the processor only loads no driver library")]
pub(crate) struct Platform {
    /// What it calls itself.
    pub(crate) name: String,
    /// Why it may show no AMD card, where it is a driver for them.
    pub(crate) hides: Option<Hides>,
}

/// Why an OpenCL driver for AMD cards may be there and show none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hides {
    /// Mesa's rusticl shows the cards of those drivers alone that `RUSTICL_ENABLE` names.
    UnlessNamed,
    /// AMD's own shows cards older than Vega only where `ROC_ENABLE_PRE_VEGA` is set, and none
    /// without the kernel's compute driver.
    PreVega,
    /// Mesa's Clover cannot drive the cards that models run on.
    All,
}

/// One device that a backend found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// The device's name for people.
    pub(crate) name: String,
    /// What it can do.
    pub(crate) caps: Caps,
}

/// Why a backend has no devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "a build with the processor only loads no driver library")]
pub(crate) enum Missing {
    /// The driver library cannot be loaded.
    Library(String),
    /// The library is there but knows no driver.
    Driver(String),
    /// The drivers are there but see no device.
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
