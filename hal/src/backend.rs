//! What a backend is, and which ones this build has: the only lines of the workspace that ask
//! for a backend's cargo feature.

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
    pub(crate) platforms: Vec<String>,
    /// Why there are no devices.
    pub(crate) missing: Option<Missing>,
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

/// The OpenCL backend, if it is compiled in.
#[cfg(feature = "rocm")]
pub(crate) const OPENCL: Option<&dyn Backend> = Some(&opencl::OpenCl);
#[cfg(not(feature = "rocm"))]
pub(crate) const OPENCL: Option<&dyn Backend> = None;

/// The CUDA backend, if it is compiled in.
#[cfg(feature = "cuda")]
pub(crate) const CUDA: Option<&dyn Backend> = Some(&cuda::Cuda);
#[cfg(not(feature = "cuda"))]
pub(crate) const CUDA: Option<&dyn Backend> = None;
