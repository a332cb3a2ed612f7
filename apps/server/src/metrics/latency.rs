//! Latencies of requests, with an exemplar trace for each bucket.

use super::histogram::{Histogram, HistogramReading};
use opentelemetry::trace::TraceId;
use std::array;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Upper bounds in microseconds.
pub(crate) const LATENCY_US: [u64; 16] = [
    200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 60_000_000,
];
const BUCKETS: usize = LATENCY_US.len() + 1;

/// A request whose trace was sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceId,
    pub(crate) took: Duration,
    pub(crate) at: SystemTime,
}

/// A histogram of durations, with exemplars.
#[derive(Debug)]
pub(super) struct Latency {
    histogram: Histogram<BUCKETS>,
    exemplars: [Mutex<Option<Exemplar>>; BUCKETS],
}

/// A snapshot of a [`Latency`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LatencyReading {
    pub(crate) histogram: HistogramReading<BUCKETS>,
    /// The latest exemplar of each bucket.
    pub(crate) exemplars: [Option<Exemplar>; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        let exemplars = array::from_fn(|_| Mutex::default());
        Self { histogram: Histogram::default(), exemplars }
    }
}

impl Latency {
    /// Counts a request, with its trace if that is sampled.
    pub(super) fn observe(&self, took: Duration, trace: Option<TraceId>) {
        let bucket = self.histogram.observe(&LATENCY_US, took);
        // If another request is just writing its trace, that one serves as well.
        if let Some(trace) = trace
            && let Some(Ok(mut exemplar)) = self.exemplars.get(bucket).map(Mutex::try_lock)
        {
            *exemplar = Some(Exemplar { trace, took, at: SystemTime::now() });
        }
    }

    pub(super) fn read(&self) -> LatencyReading {
        let exemplar =
            |it: &Mutex<Option<Exemplar>>| *it.lock().unwrap_or_else(PoisonError::into_inner);
        LatencyReading {
            histogram: self.histogram.read(),
            exemplars: self.exemplars.each_ref().map(exemplar),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_remembers_its_last_trace() {
        let latency = Latency::default();
        let trace = |id: u128| Some(TraceId::from(id));
        for (us, id) in [(100, trace(1)), (150, trace(2)), (160, None), (70_000_000, trace(3))] {
            latency.observe(Duration::from_micros(us), id);
        }
        let reading = latency.read();
        assert_eq!((reading.histogram.buckets[0], reading.histogram.buckets[16]), (3, 1));
        let traces = reading.exemplars.map(|it| it.map(|it| it.trace));
        assert_eq!((traces[0], traces[1], traces[16]), (trace(2), None, trace(3)));
    }
}
