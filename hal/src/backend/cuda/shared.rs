//! The state that the parts of one opened NVIDIA device share.

use super::nvrtc::{Nvrtc, Target};
use super::{code, is_loss};
use crate::caps::Caps;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::life::Life;
use cudarc::driver::{CudaContext, DriverError};
use std::sync::Arc;

/// The common state of the buffers and queues of one opened device.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) context: Arc<CudaContext>,
    /// The compiler and its target, or why there is no compiler.
    pub(super) compiler: Result<(Nvrtc, Target), String>,
    pub(super) life: Life,
}

impl Shared {
    /// Makes the device's context current in this thread, as every call requires.
    pub(super) fn bind(&self) -> Result<()> {
        self.life.check()?;
        self.context.bind_to_thread().map_err(self.failed("cuCtxSetCurrent"))
    }

    /// The compiler and its target; without a compiler the device has no programs.
    pub(super) fn compiler(&self) -> Result<&(Nvrtc, Target)> {
        self.compiler.as_ref().map_err(|reason| {
            let (device, reason) = (self.id, reason.clone());
            Error::Unsupported { device, what: "programs", reason }
        })
    }

    /// The maker of program binaries: a compiler for a device and its driver.
    pub(super) fn maker(&self) -> String {
        format!("cuda {} {}", self.caps.driver, self.caps.features.join(" "))
    }

    /// An error of a driver call.
    pub(super) fn failed(&self, call: &'static str) -> impl Fn(DriverError) -> Error {
        move |error| {
            let (device, code) = (self.id, code(error));
            match is_loss(error) {
                true => self.life.end(Error::DeviceLost { device, call, code }),
                false => Error::Driver { device, call, code },
            }
        }
    }
}
