//! Percentiles of measured durations, and the memory that this process has used.

use lgp_measure::stats::percentile;
use serde::Serialize;

pub(crate) use lgp_distributed::ms;

/// Percentiles in milliseconds, of every sample rather than of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    /// The percentiles of `samples` in any order; all 0 when there are none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [50, 95, 99].map(|percent| percentile(&samples, percent));
        Self { p50, p95, p99 }
    }
}

/// The times of runs of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Runs {
    pub(crate) runs: usize,
    pub(crate) min_ms: f64,
    pub(crate) median_ms: f64,
}

impl Runs {
    /// The times of `samples` in any order; all 0 when there are none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let min_ms = samples.first().copied().unwrap_or(0.0);
        Self { runs: samples.len(), min_ms, median_ms: percentile(&samples, 50) }
    }

    /// Runs it at least once, and again within `budget`, up to `most` times.
    ///
    /// # Errors
    /// That of the first run that fails.
    pub(crate) fn time<E>(
        budget: std::time::Duration,
        most: usize,
        mut run: impl FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        let begin = std::time::Instant::now();
        let mut samples = Vec::new();
        while samples.is_empty() || (samples.len() < most && begin.elapsed() < budget) {
            let start = std::time::Instant::now();
            run()?;
            samples.push(ms(start.elapsed()));
        }
        Ok(Self::of(samples))
    }
}

/// Milliseconds in three digits: `0.123`, `1.23`, `12.3`, `123`.
pub(crate) fn shown(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{ms:.3}"),
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

/// This process's peak resident memory in bytes, if the system reports it.
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
    fn runs_are_counted_and_bounded() {
        let mut count = 0;
        let mut one = || -> Result<(), ()> {
            count += 1;
            Ok(())
        };
        let none = std::time::Duration::ZERO;
        assert_eq!(Runs::time(none, 9, &mut one).map(|runs| runs.runs), Ok(1));
        let long = std::time::Duration::from_secs(60);
        assert_eq!(Runs::time(long, 9, &mut one).map(|runs| runs.runs), Ok(9));
        assert_eq!(count, 10);
        let runs = Runs::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(runs, Runs { runs: 3, min_ms: 1.0, median_ms: 2.0 });
        assert_eq!([0.1234, 1.234, 12.34, 1234.5].map(shown), ["0.123", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn percentiles_are_of_samples_in_any_order() {
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
        let samples = (1..=100).rev().map(f64::from).collect();
        assert_eq!(Percentiles::of(samples), Percentiles { p50: 50., p95: 95., p99: 99. });
    }
}
