//! The state that the parts of one opened NVIDIA device share.

use super::driver::{Driver, is_loss, needs_restart};
use super::libraries::Libraries;
use super::library::{Status, done};
use super::nvrtc::{Nvrtc, Target};
use crate::caps::Caps;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::life::Life;
use cudarc::driver::sys::{CUcontext, CUdevice};

/// The common state of the buffers and queues of one opened device, with its primary context.
/// Dropping this releases the context, unless it is lost: after most losses the driver refuses the
/// whole process, and the lost context says so when the device is opened again.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) driver: Driver,
    device: CUdevice,
    context: CUcontext,
    pub(super) libraries: Libraries,
    pub(super) life: Life,
}

// SAFETY: the context is the driver's handle, which any thread may make its current one; nothing
// else here belongs to a thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Retains the primary context of a device and makes it current in this thread.
    ///
    /// # Errors
    /// [`Error::NeedsRestart`] if a kernel ended the context before, or the driver's refusal.
    pub(super) fn retain(
        id: DeviceId,
        device: CUdevice,
        driver: Driver,
        caps: Caps,
        libraries: Libraries,
    ) -> Result<Self> {
        let mut context = std::ptr::null_mut();
        let call = "cuDevicePrimaryCtxRetain";
        // SAFETY: the device comes from the driver's own list; the context is released in `drop`.
        done(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, device) }).map_err(
            |status| {
                let (device, code) = (id, driver.code(status));
                match needs_restart(status) {
                    true => Error::NeedsRestart { device, code },
                    false => Error::Driver { device, call, code },
                }
            },
        )?;
        let shared = Self { id, caps, driver, device, context, libraries, life: Life::default() };
        // A context that was lost answers with the error that ended it.
        shared.bind().and_then(|()| shared.free_bytes()).map_err(|error| match error {
            Error::DeviceLost { device, code, .. } => Error::NeedsRestart { device, code },
            error => error,
        })?;
        Ok(shared)
    }

    /// The free bytes of the device's memory; the context must be bound.
    pub(super) fn free_bytes(&self) -> Result<usize> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two numbers into the given places.
        done(unsafe { (self.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) })
            .map_err(self.failed("cuMemGetInfo"))?;
        Ok(free)
    }

    /// Makes the device's context current in this thread, as every call requires.
    pub(super) fn bind(&self) -> Result<()> {
        self.life.check()?;
        let mut current = std::ptr::null_mut();
        // SAFETY: the call writes a handle into the given place.
        done(unsafe { (self.driver.cuCtxGetCurrent)(&raw mut current) })
            .map_err(self.failed("cuCtxGetCurrent"))?;
        if current == self.context {
            return Ok(());
        }
        // SAFETY: the context is retained.
        done(unsafe { (self.driver.cuCtxSetCurrent)(self.context) })
            .map_err(self.failed("cuCtxSetCurrent"))
    }

    /// Waits for every command in the context, which must be bound.
    ///
    /// # Errors
    /// The loss of the device, if one of the commands caused it.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the context is bound.
        done(unsafe { (self.driver.cuCtxSynchronize)() }).map_err(self.failed("cuCtxSynchronize"))
    }

    /// Takes the status of a call in a `drop`, which has nobody to tell: a loss ends the device.
    pub(super) fn dropped(&self, call: &'static str, status: u32) {
        if let Err(error) = done(status).map_err(self.failed(call)) {
            tracing::debug!(%error, "the driver does not take an object back");
        }
    }

    /// The compiler and its target; without a compiler the device has no programs.
    pub(super) fn compiler(&self) -> Result<&(Nvrtc, Target)> {
        self.libraries.compiler.as_ref().map_err(|reason| {
            let (device, reason) = (self.id, reason.clone());
            Error::Unsupported { device, what: "programs", reason }
        })
    }

    /// The maker of program binaries: a version of the compiler, which stands beside the driver's,
    /// for a device.
    pub(super) fn maker(&self) -> String {
        format!("cuda {} {}", self.caps.driver, self.caps.features.join(" "))
    }

    /// An error of a driver call.
    pub(super) fn failed(&self, call: &'static str) -> impl Fn(Status) -> Error {
        move |status| {
            let (device, code) = (self.id, self.driver.code(status));
            match is_loss(status) {
                true => self.life.end(Error::DeviceLost { device, call, code }),
                false => Error::Driver { device, call, code },
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.life.check().is_err() {
            return;
        }
        // SAFETY: the context was retained once, and all that was made in it is dropped.
        let _ = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
