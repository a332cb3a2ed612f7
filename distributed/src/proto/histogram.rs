//! Percentiles of durations in little memory: logarithmic buckets of whole microseconds.

use crate::worker_info::Percentiles;
use std::time::Duration;

/// Buckets per doubling: a bucket's width is at most 1/32 of its lower end.
const SUB: usize = 32;
const SUB_BITS: u32 = 5;
/// Doublings above the linear part; the last bucket starts at about 19 hours.
const DOUBLINGS: usize = 31;

/// A histogram with a relative error below 1/32.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; SUB * (DOUBLINGS + 1)],
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

/// A time in milliseconds. Whole nanoseconds give six decimal places at most; seconds times a
/// thousand would give more.
#[must_use]
pub fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// The bucket of a number of microseconds: linear below `SUB`, then `SUB` per doubling.
fn bucket(us: u64) -> usize {
    let last = SUB * (DOUBLINGS + 1) - 1;
    let Some(log) = us.checked_ilog2().filter(|&log| log >= SUB_BITS) else {
        return usize::try_from(us).unwrap_or(last);
    };
    let shift = log - SUB_BITS;
    let within = usize::try_from(us >> shift).unwrap_or(last) - SUB;
    let doubling = usize::try_from(shift).unwrap_or(DOUBLINGS);
    (SUB * (doubling + 1) + within).min(last)
}

/// The upper end of a bucket in microseconds.
fn upper(bucket: usize) -> u64 {
    let (doubling, within) = (bucket / SUB, bucket % SUB);
    let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    if doubling == 0 {
        return wide(within);
    }
    ((wide(SUB + within) + 1) << (doubling - 1)) - 1
}

impl Histogram {
    /// Counts one duration.
    pub(crate) fn record(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let slot = &mut self.counts[bucket(us)];
        *slot = slot.saturating_add(1);
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.max = self.max.max(duration);
    }

    /// The duration below which `per_mille` of the samples lie.
    fn percentile(&self, per_mille: u64) -> Duration {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return Duration::from_micros(upper(bucket)).min(self.max);
            }
        }
        self.max
    }

    /// What callers see.
    pub(crate) fn percentiles(&self) -> Percentiles {
        if self.count == 0 {
            return Percentiles::default();
        }
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        Percentiles {
            count: self.count,
            mean: ms(self.sum / count),
            p50: ms(self.percentile(500)),
            p95: ms(self.percentile(950)),
            p99: ms(self.percentile(990)),
            max: ms(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_no_more_digits_than_nanoseconds() {
        for (ns, text) in [(154_599, "0.154599"), (300_001, "0.300001"), (7_000_000, "7")] {
            assert_eq!(ms(Duration::from_nanos(ns)).to_string(), text);
        }
    }

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut last = 0;
        for us in 0..100_000 {
            assert!(bucket(us) == last || bucket(us) == last + 1, "{us}");
            last = bucket(us);
        }
        for us in (0..100_000).chain((17..36).map(|shift| 1 << shift)) {
            let end = upper(bucket(us));
            assert!(end >= us && end - us <= us / 32, "{us} is in a bucket up to {end}");
        }
        assert_eq!(bucket(u64::MAX), SUB * (DOUBLINGS + 1) - 1);
    }

    #[test]
    fn percentiles_of_a_uniform_range_lie_within_the_stated_error() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentiles(), Percentiles::default());
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let p = histogram.percentiles();
        for (given, expected) in
            [(p.mean, 5.0005), (p.p50, 5.0), (p.p95, 9.5), (p.p99, 9.9), (p.max, 10.0)]
        {
            assert!((given / expected - 1.0).abs() < 0.04, "{given} is not {expected}");
        }
        assert_eq!(p.count, 10_000);
    }
}
