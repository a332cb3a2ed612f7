//! Waiting tasks: urgent ones first, first come first served among equals, and nobody starves.

use crate::task::{ModelRef, Priority};
use std::collections::BTreeMap;
use std::time::Duration;

/// How much later a task must have come to be served after one of the next lower priority.
const AGEING: Duration = Duration::from_secs(10);

/// Where a task stands in line: submission time plus a handicap per priority level.
///
/// The handicap is the whole of the ageing: a background task is served before a critical one
/// that was submitted 40 s later. As it never changes, the line needs no re-sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    due: Duration,
    seq: u64,
}

impl Place {
    /// The place of a task that was submitted at `submitted`.
    pub(crate) fn new(submitted: Duration, priority: Priority, seq: u64) -> Self {
        let level = match priority {
            Priority::Critical => 0,
            Priority::High => 1,
            Priority::Normal => 2,
            Priority::Low => 3,
            Priority::Background => 4,
        };
        Self { due: submitted + AGEING * level, seq }
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }
}

/// One line per model, so that tasks of a model that no worker can take hold up no others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: BTreeMap<ModelRef, BTreeMap<Place, usize>>,
    len: usize,
    bytes: usize,
}

impl Queue {
    /// Tasks waiting.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of their inputs.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a task whose inputs take `bytes`.
    pub(crate) fn push(&mut self, model: &ModelRef, place: Place, bytes: usize) {
        let line = match self.lines.get_mut(model) {
            Some(line) => line,
            None => self.lines.entry(model.clone()).or_default(),
        };
        if line.insert(place, bytes).is_none() {
            self.len += 1;
            self.bytes += bytes;
        }
    }

    /// Takes a task out; false when it was not there.
    pub(crate) fn remove(&mut self, model: &ModelRef, place: Place) -> bool {
        let Some(line) = self.lines.get_mut(model) else { return false };
        let Some(bytes) = line.remove(&place) else { return false };
        self.len -= 1;
        self.bytes -= bytes;
        if line.is_empty() {
            // Names come from callers: lines of models that nobody asks for any more must go.
            self.lines.remove(model);
        }
        true
    }

    /// The first of each line, the most urgent line first.
    pub(crate) fn heads(&self) -> Vec<(Place, &ModelRef)> {
        let mut heads: Vec<_> = self
            .lines
            .iter()
            .filter_map(|(model, line)| Some((*line.first_key_value()?.0, model)))
            .collect();
        heads.sort_unstable_by_key(|head| head.0);
        heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> ModelRef {
        ModelRef { name: name.into(), version: 1, sha256: String::new() }
    }

    fn drain(queue: &mut Queue) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((place, model)) = queue.heads().first().map(|&(p, m)| (p, m.clone())) {
            assert!(queue.remove(&model, place));
            order.push(place.seq());
        }
        order
    }

    #[test]
    fn urgent_first_then_first_come_and_old_tasks_overtake() {
        /// (submitted, priority), numbered in order; the expected order of service.
        type Case<'a> = (&'a [(u64, Priority)], &'a [u64]);
        let s = Duration::from_secs;
        let cases: [Case<'_>; 4] = [
            (&[(0, Priority::Normal), (0, Priority::Normal), (1, Priority::Normal)], &[0, 1, 2]),
            (
                &[
                    (0, Priority::Background),
                    (0, Priority::Low),
                    (0, Priority::Normal),
                    (0, Priority::High),
                    (0, Priority::Critical),
                ],
                &[4, 3, 2, 1, 0],
            ),
            (&[(0, Priority::Background), (39, Priority::Critical)], &[1, 0]),
            (&[(0, Priority::Background), (41, Priority::Critical)], &[0, 1]),
        ];
        for (tasks, expected) in cases {
            let mut queue = Queue::default();
            for (seq, &(at, priority)) in (0u64..).zip(tasks) {
                // Spread over two models: the order must hold across lines.
                let name = if seq % 2 == 0 { "a" } else { "b" };
                queue.push(&model(name), Place::new(s(at), priority, seq), 10);
            }
            assert_eq!((queue.len(), queue.bytes()), (tasks.len(), 10 * tasks.len()));
            assert_eq!(drain(&mut queue), expected);
            assert_eq!((queue.len(), queue.bytes(), queue.lines.len()), (0, 0, 0));
        }
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut queue = Queue::default();
        let place = Place::new(Duration::ZERO, Priority::Normal, 1);
        assert!(!queue.remove(&model("a"), place));
        queue.push(&model("a"), place, 5);
        assert!(!queue.remove(&model("b"), place));
        assert!(!queue.remove(&model("a"), Place::new(Duration::ZERO, Priority::Low, 1)));
        assert_eq!((queue.len(), queue.bytes()), (1, 5));
    }
}
