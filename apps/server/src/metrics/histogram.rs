//! Histograms of durations.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A histogram of durations; the last bucket has no upper bound.
#[derive(Debug)]
pub(crate) struct Histogram<const BUCKETS: usize> {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// A snapshot of a [`Histogram`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistogramReading<const BUCKETS: usize> {
    /// Per bucket, not cumulative.
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) sum_ns: u64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::default()), sum_ns: AtomicU64::default() }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// Counts a duration by upper bounds in microseconds, one fewer than there are buckets, and returns its bucket.
    pub(super) fn observe(&self, bounds_us: &[u64], value: Duration) -> usize {
        let ns = super::nanos(value);
        let bucket = bounds_us.partition_point(|&bound| bound * 1_000 < ns);
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Relaxed);
            self.sum_ns.fetch_add(ns, Relaxed);
        }
        bucket
    }

    pub(super) fn read(&self) -> HistogramReading<BUCKETS> {
        HistogramReading {
            buckets: self.buckets.each_ref().map(|b| b.load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_whose_bound_they_do_not_pass() {
        let histogram = Histogram::<4>::default();
        for us in [50, 51, 2_000_000] {
            histogram.observe(&[50, 100, 1_000], Duration::from_micros(us));
        }
        let reading = histogram.read();
        assert_eq!(reading.buckets, [1, 1, 0, 1]);
        assert_eq!(reading.sum_ns, 2_000_101_000);
    }
}
