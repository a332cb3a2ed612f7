//! The state that the parts of one opened NVIDIA device share.

use super::blas::functions::Functions;
use super::driver::{Driver, is_loss};
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
    /// The compiler and its target, or why there is no compiler.
    pub(super) compiler: Result<(Nvrtc, Target), String>,
    /// The library of products, where the host has it.
    pub(super) blas: Option<Functions>,
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
        compiler: Result<(Nvrtc, Target), String>,
        blas: Option<Functions>,
    ) -> Result<Self> {
        let mut context = std::ptr::null_mut();
        let call = "cuDevicePrimaryCtxRetain";
        // SAFETY: the device comes from the driver's own list; the context is released in `drop`.
        done(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, device) })
            .map_err(|status| Error::Driver { device: id, call, code: driver.code(status) })?;
        let shared =
            Self { id, caps, driver, device, context, compiler, blas, life: Life::default() };
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

    /// The compiler and its target; without a compiler the device has no programs.
    pub(super) fn compiler(&self) -> Result<&(Nvrtc, Target)> {
        self.compiler.as_ref().map_err(|reason| {
            let (device, reason) = (self.id, reason.clone());
            Error::Unsupported { device, what: "programs", reason }
        })
    }

    /// The maker of program binaries: a version of the compiler, for a device and its driver.
    pub(super) fn maker(&self) -> String {
        let compiler = self.compiler.as_ref().map(|(compiler, _)| compiler.name());
        let (driver, features) = (&self.caps.driver, self.caps.features.join(" "));
        format!("cuda {driver} {features} {}", compiler.unwrap_or_default())
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
