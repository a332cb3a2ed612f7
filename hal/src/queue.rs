//! The queue: a device's commands in order.

use crate::buffer::Buffer;
use crate::error::Result;
use crate::event::Event;
use crate::id::DeviceId;
use crate::pinned::{Pinned, Transfer};
use crate::program::Launch;
use std::any::Any;
use std::sync::Arc;

/// An in-order queue of commands on one device: each command sees the effects of earlier commands
/// in the same queue. The effects of another queue are visible after that queue's `finish`, or
/// after waiting for its event.
pub trait Queue: Send {
    /// The device of the queue.
    fn device(&self) -> DeviceId;

    /// Copies `data` into `buffer` from byte `offset` on. The data may be reused on return.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`], [`crate::Error::Foreign`], or the driver's refusal.
    fn write(&mut self, buffer: &dyn Buffer, offset: usize, data: &[u8]) -> Result<()>;

    /// Fills `out` from `buffer` from byte `offset` on, after all earlier commands.
    ///
    /// # Errors
    /// As [`Queue::write`]; also a failure of an earlier command.
    fn read(&mut self, buffer: &dyn Buffer, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Queues a copy of the first `bytes` bytes of `block` into `buffer` from byte `offset` on. The
    /// transfer returns the block.
    ///
    /// # Errors
    /// As [`Queue::write`]; the block is lost then.
    fn write_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer>;

    /// Queues a copy of the bytes of `buffer` from byte `offset` on into the first `bytes` bytes of
    /// `block`. The transfer returns the block.
    ///
    /// # Errors
    /// As [`Queue::write`]; the block is lost then.
    fn read_async(
        &mut self,
        buffer: &dyn Buffer,
        offset: usize,
        block: Pinned,
        bytes: usize,
    ) -> Result<Transfer>;

    /// Copies `bytes` bytes between two buffers of the device, or two places of one that do not
    /// overlap.
    ///
    /// # Errors
    /// As [`Queue::write`]; also [`crate::Error::Overlap`].
    fn copy(
        &mut self,
        from: &dyn Buffer,
        from_offset: usize,
        to: &dyn Buffer,
        to_offset: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Queues one kernel.
    ///
    /// # Safety
    /// The kernel must stay within its buffers and its local memory, and its arguments must have
    /// the types of its parameters: a kernel can reach any byte of the device, and on a device
    /// that is a processor any byte of this process.
    ///
    /// # Errors
    /// [`crate::Error::Launch`] when kernel, grid or arguments do not fit,
    /// [`crate::Error::Unsupported`] on a device without programs.
    unsafe fn launch(&mut self, launch: &Launch<'_>) -> Result<()>;

    /// Records an event at this point of the queue, and submits the commands before it.
    ///
    /// # Errors
    /// The driver's refusal.
    fn record(&mut self) -> Result<Arc<dyn Event>>;

    /// Makes later commands wait for `event`, which may be of another queue of the device. The host
    /// does not wait.
    ///
    /// # Errors
    /// [`crate::Error::Foreign`] for an event of another opened device, or the driver's refusal.
    fn wait_for(&mut self, event: &dyn Event) -> Result<()>;

    /// Hands everything queued so far to the device, without waiting for it.
    ///
    /// # Errors
    /// The driver's refusal.
    fn submit(&mut self) -> Result<()>;

    /// Waits until everything queued so far is done.
    ///
    /// # Errors
    /// A failure of an earlier command.
    fn finish(&mut self) -> Result<()>;

    /// The backend's own type, for a downcast by code that also uses the device's queues: the
    /// vendor's library.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
