//! A source of segments without a device, for simulations.

use super::SegmentSource;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device of numbers only: its memory, and its largest segment. Clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedDevice {
    segment_bytes_max: usize,
    free: Arc<AtomicUsize>,
}

impl SimulatedDevice {
    /// A device with `bytes` bytes, and segments of at most `segment_bytes_max`.
    #[must_use]
    pub fn new(bytes: usize, segment_bytes_max: usize) -> Self {
        Self { segment_bytes_max, free: Arc::new(bytes.into()) }
    }
}

/// A segment of a [`SimulatedDevice`].
#[derive(Debug)]
pub struct SimulatedSegment {
    bytes: usize,
    free: Arc<AtomicUsize>,
}

impl Drop for SimulatedSegment {
    fn drop(&mut self) {
        self.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl SegmentSource for SimulatedDevice {
    type Segment = SimulatedSegment;

    fn segment(&mut self, bytes: usize) -> Result<SimulatedSegment> {
        let refused = Error::OutOfMemory { bytes };
        if bytes > self.segment_bytes_max {
            return Err(refused);
        }
        let less = |free: usize| free.checked_sub(bytes);
        match self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(SimulatedSegment { bytes, free: Arc::clone(&self.free) }),
            Err(_) => Err(refused),
        }
    }
}
