//! Host memory that a device accesses directly, and transfers of it.

use crate::error::Result;
use crate::event::Event;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// A block of host memory that is zeroed when made. The device that made it transfers from it at
/// full speed, without the host's help; any device can transfer from it.
pub struct Pinned {
    start: NonNull<u8>,
    bytes: usize,
    /// Frees the memory when dropped.
    owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the block is plain memory without other references, like that of a `Vec`.
unsafe impl Send for Pinned {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Takes ownership of a block, and zeroes it.
    ///
    /// # Safety
    /// The `bytes` bytes from `start` on must be readable and writable until `owner` is dropped,
    /// and nothing else may refer to them.
    pub(crate) unsafe fn new(
        start: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller promises that the bytes are writable and have no other references.
        unsafe { start.write_bytes(0, bytes) };
        Self { start, bytes, owner }
    }

    /// What frees the memory, for a downcast by the backend that made the block.
    #[allow(dead_code, reason = "only some backends transfer from blocks by their own handles")]
    pub(crate) fn owner(&self) -> &dyn Any {
        &*self.owner
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes were initialised by `new`, live as long as this, and are not written
        // while they are borrowed: a transfer in flight owns the block.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinned").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A transfer in flight. It owns the block, so that no code reads, writes or frees the block
/// meanwhile; dropping the transfer waits for the device.
#[derive(Debug)]
pub struct Transfer {
    block: Option<Pinned>,
    done: Arc<dyn Event>,
}

impl Transfer {
    /// A transfer of `block` that ends with the event `done`.
    pub(crate) fn new(block: Pinned, done: Arc<dyn Event>) -> Self {
        Self { block: Some(block), done }
    }

    /// The event of the transfer's end, for other queues to wait for.
    #[must_use]
    pub fn done(&self) -> &Arc<dyn Event> {
        &self.done
    }

    /// Waits for the end of the transfer and returns the block.
    ///
    /// # Errors
    /// A failure of the transfer or of an earlier command. The block is then lost, because the
    /// device may still access it.
    pub fn wait(mut self) -> Result<Pinned> {
        self.done.wait()?;
        match self.block.take() {
            Some(block) => Ok(block),
            None => unreachable!("only this takes the block, and it takes the transfer too"),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Memory that a device may still access is never given back to the allocator.
        if let Some(block) = self.block.take()
            && self.done.wait().is_err()
        {
            std::mem::forget(block);
        }
    }
}
