//! A vendor's library of linear algebra on one device.

use crate::error::Result;
use crate::gemm::Gemm;
use crate::queue::Queue;
use std::fmt::Debug;

/// Products of matrices by the vendor's library, which [`crate::Device::blas`] returns if it is
/// installed.
pub trait Blas: Debug + Send + Sync {
    /// Does what the library does once for a queue, such as taking memory, so that no product waits
    /// for it. The first product does it for a queue that was not prepared.
    ///
    /// # Errors
    /// [`crate::Error::Foreign`] for a queue of another opened device, or the library's refusal.
    fn prepare(&self, _queue: &mut dyn Queue) -> Result<()> {
        Ok(())
    }

    /// Queues a product on a queue of the device.
    ///
    /// # Errors
    /// [`crate::Error::Launch`] when sizes, strides and buffers do not fit;
    /// [`crate::Error::Foreign`] for a queue or buffer of another opened device; or the library's
    /// refusal.
    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()>;
}
