//! Waiting tasks: urgent ones first, first come first served among equals, and none starves.

use crate::task::{ModelRef, Priority};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// How much later a task must have come to be served after one of the next lower priority.
const AGEING: Duration = Duration::from_secs(10);

/// A task's place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    due: Duration,
    seq: u64,
}

/// Submission time plus a handicap per priority level.
///
/// The handicap is the whole of the ageing: a background task is served before a critical one
/// that was submitted 40 s later. As it never changes, the line needs no re-sorting.
pub fn aged(submitted: Duration, priority: Priority) -> Duration {
    submitted + AGEING * priority.level()
}

impl Place {
    /// The place of a task by its [`aged`] time; those with equal times go in order of submission.
    pub fn new(due: Duration, seq: u64) -> Self {
        Self { due, seq }
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// One line per model, so that tasks of a model that no worker can take hold up no others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lines: HashMap<Arc<ModelRef>, Line>,
    /// The first of each line.
    heads: BTreeMap<Place, Arc<ModelRef>>,
    len: usize,
    urgent: usize,
    /// Tasks waiting, by the level of their priority.
    levels: [usize; Priority::ALL.len()],
}

/// The tasks of a model, and how many are [`is_urgent`].
#[derive(Debug, Default)]
struct Line {
    places: BTreeMap<Place, Priority>,
    urgent: usize,
}

/// Whether background work makes room for tasks of this priority.
pub(crate) fn is_urgent(priority: Priority) -> bool {
    priority <= Priority::Normal
}

/// Changes how many tasks of a priority wait.
fn count(
    levels: &mut [usize; Priority::ALL.len()],
    priority: Priority,
    change: impl Fn(usize) -> usize,
) {
    for (level, waiting) in Priority::ALL.into_iter().zip(levels) {
        if level == priority {
            *waiting = change(*waiting);
        }
    }
}

impl Queue {
    /// Tasks waiting.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Tasks of a model waiting.
    pub(crate) fn depth(&self, model: &ModelRef) -> usize {
        self.lines.get(model).map_or(0, |line| line.places.len())
    }

    /// The models whose tasks wait, each with their number.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (&ModelRef, usize)> {
        self.lines.iter().map(|(model, line)| (&**model, line.places.len()))
    }

    /// The number of waiting tasks of each priority that has any.
    pub(crate) fn by_priority(&self) -> impl Iterator<Item = (Priority, usize)> {
        let levels = Priority::ALL.into_iter().zip(self.levels);
        levels.filter(|(_, waiting)| *waiting > 0)
    }

    /// Adds a task.
    pub(crate) fn push(&mut self, model: &Arc<ModelRef>, place: Place, priority: Priority) {
        let line = match self.lines.get_mut(model) {
            Some(line) => line,
            None => self.lines.entry(Arc::clone(model)).or_default(),
        };
        let first = line.first();
        let urgent = is_urgent(priority);
        if line.places.insert(place, priority).is_some() {
            return;
        }
        self.len += 1;
        count(&mut self.levels, priority, |waiting| waiting + 1);
        self.urgent += usize::from(urgent);
        line.urgent += usize::from(urgent);
        if first.is_none_or(|first| place < first) {
            if let Some(first) = first {
                self.heads.remove(&first);
            }
            self.heads.insert(place, Arc::clone(model));
        }
    }

    /// Takes a task out; false when it was not there.
    pub(crate) fn remove(&mut self, model: &ModelRef, place: Place) -> bool {
        let Some(line) = self.lines.get_mut(model) else { return false };
        let Some(priority) = line.places.remove(&place) else { return false };
        let urgent = is_urgent(priority);
        self.len -= 1;
        count(&mut self.levels, priority, |waiting| waiting - 1);
        self.urgent -= usize::from(urgent);
        line.urgent -= usize::from(urgent);
        let next = line.first();
        if let Some(model) = self.heads.remove(&place)
            && let Some(next) = next
        {
            self.heads.insert(next, model);
        }
        if next.is_none() {
            // Names come from callers: a line without tasks must not stay for ever.
            self.lines.remove(model);
        }
        true
    }

    /// The most urgent head of a line, after `after`.
    pub(crate) fn head_after(&self, after: Option<Place>) -> Option<(Place, Arc<ModelRef>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (place, model) = self.heads.range((from, Bound::Unbounded)).next()?;
        Some((*place, Arc::clone(model)))
    }

    /// The places behind one in a model's line.
    pub(crate) fn behind(&self, model: &ModelRef, place: Place) -> impl Iterator<Item = Place> {
        let line = self.lines.get(model);
        let from = (Bound::Excluded(place), Bound::Unbounded);
        line.into_iter().flat_map(move |line| line.places.range(from).map(|(place, _)| *place))
    }

    /// The place of a model's first task, if any waits.
    pub(crate) fn head_of(&self, model: &ModelRef) -> Option<Place> {
        self.lines.get(model)?.places.first_key_value().map(|(place, _)| *place)
    }

    /// Tasks before a place, of all models.
    pub(crate) fn before(&self, place: Place) -> usize {
        self.lines.values().map(|line| line.places.range(..place).count()).sum()
    }

    /// Tasks for which background work makes room, of one model or of all.
    pub(crate) fn urgent(&self, model: Option<&ModelRef>) -> usize {
        match model {
            None => self.urgent,
            Some(model) => self.lines.get(model).map_or(0, |line| line.urgent),
        }
    }
}

impl Line {
    fn first(&self) -> Option<Place> {
        self.places.first_key_value().map(|(place, _)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> Arc<ModelRef> {
        Arc::new(ModelRef { name: name.into(), version: 1, sha256: String::new() })
    }

    fn drain(queue: &mut Queue) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((place, model)) = queue.head_after(None) {
            assert_eq!(queue.before(place), 0);
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
                queue.push(&model(name), Place::new(aged(s(at), priority), seq), priority);
            }
            assert_eq!(queue.len(), tasks.len());
            let urgent = tasks.iter().filter(|(_, priority)| is_urgent(*priority)).count();
            assert_eq!(queue.urgent(None), urgent);
            let of = |name| queue.urgent(Some(&model(name)));
            assert_eq!(of("a") + of("b"), urgent);
            assert_eq!(queue.depth(&model("a")) + queue.depth(&model("b")), tasks.len());
            assert_eq!(queue.depths().map(|(_, depth)| depth).sum::<usize>(), tasks.len());
            assert_eq!(drain(&mut queue), expected);
            assert_eq!((queue.len(), queue.heads.len(), queue.lines.len()), (0, 0, 0));
            assert_eq!(queue.urgent(None), 0);
        }
    }

    #[test]
    fn removing_what_is_not_there_changes_nothing() {
        let mut queue = Queue::default();
        let place = Place::new(Duration::from_secs(20), 1);
        assert!(!queue.remove(&model("a"), place));
        queue.push(&model("a"), place, Priority::Normal);
        assert!(!queue.remove(&model("b"), place));
        assert!(!queue.remove(&model("a"), Place::new(Duration::from_secs(30), 1)));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn heads_follow_what_is_added_and_removed() {
        let at = |ms, seq| Place::new(Duration::from_millis(ms), seq);
        let mut queue = Queue::default();
        for (name, place) in [("a", at(5, 1)), ("b", at(4, 2)), ("a", at(3, 3)), ("b", at(9, 4))] {
            queue.push(&model(name), place, Priority::Low);
        }
        let first = queue.head_after(None).map(|(place, _)| place);
        assert_eq!(first, Some(at(3, 3)));
        assert_eq!(queue.head_after(first).map(|(place, _)| place), Some(at(4, 2)));
        assert_eq!(queue.head_after(Some(at(4, 2))), None, "one head a line");
        assert_eq!(queue.before(at(9, 4)), 3);
        assert!(queue.remove(&model("a"), at(5, 1)), "from the middle");
        assert!(queue.remove(&model("a"), at(3, 3)));
        assert_eq!(queue.head_after(None).map(|(place, _)| place), Some(at(4, 2)));
    }
}
