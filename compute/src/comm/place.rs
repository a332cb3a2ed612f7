//! The two ends of a transfer.

use lgp_hal::{Buffer, Event};
use std::sync::Arc;

/// A place in one device's memory.
#[derive(Debug, Clone)]
pub struct Place {
    /// Number of the device among those of the [`Transfers`](super::Transfers).
    pub device: usize,
    /// The memory, which the transfer keeps as long as it needs it. If it is a block of a pool, the
    /// caller must keep the block as well.
    pub buffer: Arc<dyn Buffer>,
    /// Where in it the bytes begin.
    pub offset: usize,
    /// The event from which on the bytes may be touched: the queue that makes the bytes has made
    /// them, or has finished with the bytes that they replace. `None` is at once.
    pub ready: Option<Arc<dyn Event>>,
}

impl Place {
    /// The beginning of a buffer, which may be touched at once.
    #[must_use]
    pub fn new(device: usize, buffer: Arc<dyn Buffer>) -> Self {
        Self { device, buffer, offset: 0, ready: None }
    }
}
