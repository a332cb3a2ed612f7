//! A limit of bytes per second. Time is an argument.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// A token bucket, kept as the moment at which it will be full again: in any time `t`, at most
/// `rate · t` bytes begin, and two chunks more.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: NonZeroU64,
    /// How far chunks may run ahead of the rate, to make up for threads that wake late.
    slack: Duration,
    full: Option<Instant>,
}

impl Pace {
    /// A limit that chunks of `chunk_bytes` are held to.
    pub(super) fn new(bytes_per_second: NonZeroU64, chunk_bytes: usize) -> Self {
        Self { bytes_per_second, slack: time_of(chunk_bytes, bytes_per_second), full: None }
    }

    /// When the next chunk may begin; `None` is now.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        let opens = self.full?.checked_sub(self.slack)?;
        (opens > now).then_some(opens)
    }

    /// Counts a chunk that begins.
    pub(super) fn take(&mut self, now: Instant, bytes: usize) {
        let begin = self.full.map_or(now, |full| full.max(now));
        self.full = Some(begin + time_of(bytes, self.bytes_per_second));
    }
}

/// The time that so many bytes take at a rate.
fn time_of(bytes: usize, rate: NonZeroU64) -> Duration {
    let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.get()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
