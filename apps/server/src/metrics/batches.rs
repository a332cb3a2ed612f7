//! Runs of a model by the size of their batches.

use super::Spans;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most batch sizes that are counted for each model, because requests may have any number of rows. Runs of
/// further sizes are not counted.
const SIZES_MAX: usize = 256;

/// The runs of one batch size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchReading {
    pub(crate) runs: u64,
    pub(crate) compute_input_ns: u64,
    pub(crate) compute_infer_ns: u64,
    pub(crate) compute_output_ns: u64,
}

/// Runs by their number of rows.
#[derive(Debug, Default)]
pub(super) struct Batches(Mutex<BTreeMap<u64, BatchReading>>);

impl Batches {
    /// Counts a run of `rows` rows, with the times of the request that counts it.
    pub(super) fn ran(&self, rows: u64, spans: &Spans) {
        let mut sizes = self.sizes();
        if sizes.len() >= SIZES_MAX && !sizes.contains_key(&rows) {
            return;
        }
        let size = sizes.entry(rows).or_default();
        size.runs += 1;
        let add = |sum: &mut u64, time: Duration| *sum = sum.saturating_add(super::nanos(time));
        add(&mut size.compute_input_ns, spans.compute_input);
        add(&mut size.compute_infer_ns, spans.compute_infer);
        add(&mut size.compute_output_ns, spans.compute_output);
    }

    pub(super) fn read(&self) -> Vec<(u64, BatchReading)> {
        self.sizes().iter().map(|(rows, size)| (*rows, *size)).collect()
    }

    fn sizes(&self) -> MutexGuard<'_, BTreeMap<u64, BatchReading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_an_end() {
        let batches = Batches::default();
        let spans = Spans { compute_infer: Duration::from_nanos(5), ..Spans::default() };
        for rows in (0..1_000).chain([3, 999]) {
            batches.ran(rows, &spans);
        }
        let read = batches.read();
        assert_eq!(read.len(), SIZES_MAX);
        let twice = BatchReading { runs: 2, compute_infer_ns: 10, ..BatchReading::default() };
        assert_eq!(read[3], (3, twice));
    }
}
