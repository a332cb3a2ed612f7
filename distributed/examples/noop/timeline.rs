//! Task rates and latencies over time: before, during and after a fault.

use crate::load::Percentiles;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The resolution of rates.
const BUCKET: Duration = Duration::from_millis(100);
/// The share of the earlier rate that counts as recovered, in `BUCKETS` successive buckets.
const RECOVERED: f64 = 0.9;
const BUCKETS: usize = 3;

/// Ends of tasks, in order of arrival.
#[derive(Default)]
pub(crate) struct Timeline {
    /// When a task ended, and its latency in milliseconds.
    pub(crate) ends: Vec<(Instant, f64)>,
}

impl Timeline {
    /// Rate and latency of the ends between two times.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Value {
        let inside = self.ends.iter().filter(|(at, _)| (from..to).contains(at));
        let latencies: Vec<f64> = inside.map(|(_, ms)| *ms).collect();
        let seconds = to.saturating_duration_since(from).as_secs_f64().max(1e-9);
        json!({
            "seconds": seconds,
            "tasks_per_s": latencies.len() as f64 / seconds,
            "latency_us": Percentiles::of_ms(latencies),
        })
    }

    /// The time of the first end after `moment`.
    pub(crate) fn first_after(&self, moment: Instant) -> Option<Instant> {
        self.ends.iter().map(|(at, _)| *at).filter(|at| *at > moment).min()
    }

    /// When the rate recovered to its mean between `from` and `fault`; the search starts at
    /// `after`.
    pub(crate) fn recovered(
        &self,
        from: Instant,
        fault: Instant,
        after: Instant,
    ) -> Option<Instant> {
        let buckets = fault.saturating_duration_since(from).as_secs_f64() / BUCKET.as_secs_f64();
        let before = self.ends.iter().filter(|(at, _)| (from..fault).contains(at)).count();
        let wanted = RECOVERED * before as f64 / buckets;
        let last = self.ends.iter().map(|(at, _)| *at).max()?;
        let mut start = after;
        while start + BUCKET * BUCKETS as u32 <= last {
            let is_enough = |n: u32| {
                let bucket = start + BUCKET * n..start + BUCKET * (n + 1);
                let ends = self.ends.iter().filter(|(at, _)| bucket.contains(at)).count();
                ends as f64 >= wanted
            };
            if (0..BUCKETS as u32).all(is_enough) {
                return Some(start);
            }
            start += BUCKET / 10;
        }
        None
    }
}

/// Milliseconds between two times; `None` if the second never came.
pub(crate) fn ms(from: Instant, to: Option<Instant>) -> Option<f64> {
    Some(to?.saturating_duration_since(from).as_secs_f64() * 1e3)
}
