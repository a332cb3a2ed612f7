//! The queue: the order in which a device does things.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::id::DeviceId;
use crate::program::Launch;

/// An in-order queue of commands on one device: each command sees the effects of those before it
/// in the same queue. What another queue did is seen after that queue's `finish`.
pub trait Queue: Send {
    /// The device whose queue it is.
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

    /// Queues a product of matrices by the vendor's library.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] on a device whose caps have no `gemm`;
    /// [`crate::Error::Launch`] when sizes, strides and buffers do not fit;
    /// [`crate::Error::Foreign`]; or the library's refusal.
    fn gemm(&mut self, _gemm: &Gemm<'_>) -> Result<()> {
        let reason = "there is no library of the vendor's for it".to_owned();
        Err(Error::Unsupported { device: self.device(), what: "gemm", reason })
    }

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
}
