//! The state that the parts of one opened NVIDIA device share.

use super::nvrtc::{Nvrtc, Target};
use super::{code, is_loss};
use crate::caps::Caps;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::life::Life;
use cudarc::driver::{CudaContext, DriverError};
use std::sync::Arc;

/// What buffers and queues of one opened device have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) context: Arc<CudaContext>,
    /// The compiler and what it compiles to, or why there is none.
    pub(super) compiler: Result<(Nvrtc, Target), String>,
    pub(super) life: Life,
}

impl Shared {
    /// Makes the device's context the current one of this thread, as every call needs it.
    pub(super) fn bind(&self) -> Result<()> {
        self.life.check()?;
        self.context.bind_to_thread().map_err(self.failed("cuCtxSetCurrent"))
    }

    /// The compiler and what it compiles to, without which there are no programs.
    pub(super) fn compiler(&self) -> Result<&(Nvrtc, Target)> {
        self.compiler.as_ref().map_err(|reason| {
            let (device, reason) = (self.id, reason.clone());
            Error::Unsupported { device, what: "programs", reason }
        })
    }

    /// Who makes program binaries: a compiler for a device, as this driver takes them.
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
