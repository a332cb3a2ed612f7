//! Percentiles of measured durations, and the memory that this process has used.

use serde::Serialize;

/// Percentiles in milliseconds, of every sample rather than of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    /// Of `samples` in any order; all 0 when there are none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [50, 95, 99].map(|percent| rank(&samples, percent));
        Self { p50, p95, p99 }
    }
}

/// The nearest-rank percentile: the smallest sample that is not less than `percent` % of all.
fn rank(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// A duration in milliseconds.
pub(crate) fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The most memory that this process ever had resident, in bytes, where the system tells.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let to = |n: u32| (1..=n).rev().map(f64::from).collect::<Vec<_>>();
        for (samples, p50, p95, p99) in [
            (vec![], 0., 0., 0.),
            (vec![7.], 7., 7., 7.),
            (to(2), 1., 2., 2.),
            (to(20), 10., 19., 20.),
            (to(100), 50., 95., 99.),
            (to(1000), 500., 950., 990.),
        ] {
            assert_eq!(Percentiles::of(samples), Percentiles { p50, p95, p99 });
        }
    }
}
