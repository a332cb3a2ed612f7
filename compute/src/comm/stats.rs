//! The counters of a link.

use std::time::Duration;

/// The finished and the waiting transfers of one direction between two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Number of the device that the bytes come from.
    pub from: usize,
    /// Number of the device that they go to.
    pub to: usize,
    /// Transfers whose bytes have all arrived.
    pub arrived: u64,
    /// Transfers that a device's failure ended.
    pub failed: u64,
    /// Transfers that were cancelled.
    pub cancelled: u64,
    /// Bytes that have arrived, including those of unfinished transfers.
    pub bytes: u64,
    /// Chunks that have arrived.
    pub chunks: u64,
    /// Time in which a chunk was on its way.
    pub busy: Duration,
    /// Transfers that have not ended.
    pub queued: usize,
    /// Bytes of these transfers that have not been sent.
    pub queued_bytes: usize,
}

impl LinkStats {
    /// Bytes per second of the time in which any were on their way; 0 before the first.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.busy.as_secs_f64();
        if seconds > 0. { self.bytes as f64 / seconds } else { 0. }
    }
}
