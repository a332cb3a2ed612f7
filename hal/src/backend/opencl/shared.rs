//! The state that the parts of one opened OpenCL device share.

use super::codes::{Call, Meaning, meaning};
use super::quirks::Quirks;
use crate::caps::Caps;
use crate::error::Error;
use crate::id::DeviceId;
use crate::life::Life;
use crate::program::Launch;
use opencl3::context::Context;
use opencl3::error_codes::ClError;
use std::sync::atomic::{AtomicU64, Ordering};

/// The common state of the buffers, programs and queues of one opened device.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) device: opencl3::device::Device,
    pub(super) context: Context,
    pub(super) quirks: Quirks,
    pub(super) life: Life,
    /// The number of memory objects made so far.
    pub(super) memories: AtomicU64,
}

impl Shared {
    /// The number of a new memory object.
    pub(super) fn next_memory(&self) -> u64 {
        self.memories.fetch_add(1, Ordering::Relaxed)
    }

    /// The maker of program binaries: a driver for a device.
    pub(super) fn maker(&self) -> String {
        format!("opencl {} {}", self.caps.driver, self.device.name().unwrap_or_default())
    }

    /// An error of a driver call.
    pub(super) fn failed(&self, call: &'static str) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, Call::Other, 0, error)
    }

    /// An error of a driver call that waited for commands.
    pub(super) fn waited(&self, call: &'static str) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, Call::Wait, 0, error)
    }

    /// An error of a driver call that moved `bytes` bytes and waited for the commands before it.
    pub(super) fn moved(&self, call: &'static str, bytes: usize) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, Call::Wait, bytes, error)
    }

    /// An error of a driver call that made `bytes` bytes, or queued a command on them: some drivers
    /// find out only at the first use that allocated memory does not exist.
    pub(super) fn used(&self, call: &'static str, bytes: usize) -> impl Fn(ClError) -> Error {
        move |error| self.judge(call, Call::Memory, bytes, error)
    }

    /// An error of a launch: the launch is at fault, unless the device is lost or has no memory.
    pub(super) fn launched(
        &self,
        call: &'static str,
        launch: &Launch<'_>,
    ) -> impl Fn(ClError) -> Error {
        move |error| match self.judge(call, Call::Other, 0, error) {
            Error::Driver { code, .. } => launch.refusal(code),
            error => error,
        }
    }

    fn judge(&self, call: &'static str, did: Call, bytes: usize, error: ClError) -> Error {
        let (device, code) = (self.id, error.to_string());
        match meaning(&error, did, &self.quirks) {
            Meaning::Loss => self.life.end(Error::DeviceLost { device, call, code }),
            Meaning::Shortage => Error::OutOfMemory { device, bytes, reason: code },
            Meaning::Refusal => Error::Driver { device, call, code },
        }
    }
}
