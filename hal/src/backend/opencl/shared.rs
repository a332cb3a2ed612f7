//! The state that the parts of one opened OpenCL device share.

use super::is_loss;
use super::quirks::Quirks;
use crate::caps::Caps;
use crate::error::Error;
use crate::id::DeviceId;
use crate::life::Life;
use opencl3::context::Context;
use opencl3::error_codes::ClError;

/// The common state of the buffers, programs and queues of one opened device.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) device: opencl3::device::Device,
    pub(super) context: Context,
    pub(super) quirks: Quirks,
    pub(super) life: Life,
}

impl Shared {
    /// The maker of program binaries: a driver for a device.
    pub(super) fn maker(&self) -> String {
        format!("opencl {} {}", self.caps.driver, self.device.name().unwrap_or_default())
    }

    /// An error of a driver call.
    pub(super) fn failed(&self, call: &'static str) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, error, false)
    }

    /// An error of a driver call that waited for commands.
    pub(super) fn waited(&self, call: &'static str) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, error, true)
    }

    fn judge(&self, call: &'static str, error: ClError, waited: bool) -> Error {
        let (device, code) = (self.id, error.to_string());
        match is_loss(&error, waited, &self.quirks) {
            true => self.life.end(Error::DeviceLost { device, call, code }),
            false => Error::Driver { device, call, code },
        }
    }
}
