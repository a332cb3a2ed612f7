//! Host memory that an NVIDIA device accesses directly.

use super::driver::is;
use super::library::done;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::pinned::Pinned;
use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUresult};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory from the driver; dropping this frees it.
struct Block {
    start: NonNull<u8>,
    shared: Arc<Shared>,
}

// SAFETY: the pointer is only given back to the driver, from any thread that has bound the context.
unsafe impl Send for Block {}
// SAFETY: as above; a shared reference gives no access.
unsafe impl Sync for Block {}

/// Makes a block of `bytes` bytes.
pub(super) fn new(shared: &Arc<Shared>, bytes: usize) -> Result<Pinned> {
    let device = shared.id;
    let refuse = |reason: String| Error::OutOfMemory { device, bytes, reason };
    if isize::try_from(bytes).is_err() {
        return Err(refuse("no host has as many".to_owned()));
    }
    shared.bind()?;
    let mut start = std::ptr::null_mut();
    // Portable: other NVIDIA devices of the process access the memory at full speed too.
    let flags = CU_MEMHOSTALLOC_PORTABLE;
    // SAFETY: the context is bound; the pointer is freed once, by its owner.
    match done(unsafe { (shared.driver.cuMemHostAlloc)(&raw mut start, bytes.max(1), flags) }) {
        Ok(()) => {}
        Err(status) if is(status, CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
            return Err(refuse(shared.driver.code(status)));
        }
        Err(status) => return Err(shared.failed("cuMemHostAlloc")(status)),
    }
    let start = NonNull::new(start.cast::<u8>())
        .ok_or_else(|| refuse("the driver gives no address".to_owned()))?;
    let owner = Block { start, shared: Arc::clone(shared) };
    // SAFETY: the driver provides `bytes` bytes until the owner frees them. Only a transfer, which
    // owns the block, gives the pointer to the driver.
    Ok(unsafe { Pinned::new(start, bytes, Box::new(owner)) })
}

impl Drop for Block {
    fn drop(&mut self) {
        // A context that cannot be bound is lost, together with its memory.
        if self.shared.bind().is_ok() {
            // SAFETY: the pointer came from `cuMemHostAlloc` and is not used again.
            let status = unsafe { (self.shared.driver.cuMemFreeHost)(self.start.as_ptr().cast()) };
            self.shared.dropped("cuMemFreeHost", status);
        }
    }
}
