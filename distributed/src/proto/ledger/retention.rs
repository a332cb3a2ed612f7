//! Which ended tasks are known, and whose results are kept: the newest tasks by whole records in
//! memory; durable tasks and tasks with an idempotency key by a stub, for longer.

use super::stub::Stub;
use crate::proto::state::RetentionLimits;
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// One in so many whole records in memory may be of a task that the journal has as well.
const SAVED_SHARE: usize = 8;

/// Sorted by the end of a task, in milliseconds, and its number.
type Order = BTreeSet<(u64, u64)>;

/// What is known of ended tasks.
#[derive(Debug, Default)]
pub(in crate::proto) struct Retention {
    /// Tasks whose whole records may leave the memory, in the order of their ends: `saved` are in
    /// the journal as well, `unsaved` are not.
    saved: VecDeque<u64>,
    unsaved: VecDeque<u64>,
    /// The bytes that whole records keep alive.
    whole_bytes: usize,
    /// The stub of each durable task and of each task with a key.
    stubs: BTreeMap<u64, Stub>,
    /// Durable tasks whose results are kept; a caller was given the results of `read`.
    unread: Order,
    read: Order,
    /// Tasks whose results are gone and whose records are not needed to understand others.
    stripped: Order,
    /// Bytes of the results that are kept in the journal.
    bytes: u64,
}

/// What is to be dropped next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proto) enum Due {
    /// All that is left of a task whose result is gone.
    Stub(u64),
    Result(u64),
}

fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

impl Retention {
    /// Counts the whole record of an ended task, which is in memory.
    pub(in crate::proto) fn hold(&mut self, bytes: usize) {
        self.whole_bytes = self.whole_bytes.saturating_add(bytes);
    }

    /// Uncounts a whole record, which is not in memory any more.
    pub(in crate::proto) fn release(&mut self, bytes: usize) {
        self.whole_bytes = self.whole_bytes.saturating_sub(bytes);
    }

    /// From now on a record stays in memory only as long as there is room.
    pub(in crate::proto) fn list(&mut self, seq: u64, is_saved: bool) {
        let list = if is_saved { &mut self.saved } else { &mut self.unsaved };
        list.push_back(seq);
    }

    /// Takes the oldest record if there are too many, first of those that can be read back.
    pub(in crate::proto) fn pop_whole(&mut self, max: usize, bytes_max: usize) -> Option<u64> {
        let saved = self.saved.len();
        if saved.saturating_add(self.unsaved.len()) > max || self.whole_bytes > bytes_max {
            return self.saved.pop_front().or_else(|| self.unsaved.pop_front());
        }
        if saved > max.div_ceil(SAVED_SHARE) { self.saved.pop_front() } else { None }
    }

    /// Keeps the stub of a task that has ended.
    pub(in crate::proto) fn keep(&mut self, stub: Stub) {
        let (seq, place) = (stub.id.seq, stub.place());
        if stub.gone {
            self.stripped.insert(place);
        } else if stub.durable {
            self.bytes = self.bytes.saturating_add(stub.bytes);
            self.unread.insert(place);
        }
        self.stubs.insert(seq, stub);
    }

    pub(in crate::proto) fn get(&self, seq: u64) -> Option<&Stub> {
        self.stubs.get(&seq)
    }

    /// The stub of an id; `None` where the number belongs to a task of another epoch.
    pub(in crate::proto) fn of(&self, id: TaskId) -> Option<&Stub> {
        self.get(id.seq).filter(|stub| stub.id == id)
    }

    /// Stubs below a number, in descending order.
    pub(in crate::proto) fn below(&self, seq: u64) -> impl Iterator<Item = &Stub> {
        self.stubs.range(..seq).rev().map(|(_, stub)| stub)
    }

    /// An open task depends on this one: a later coordinator has to know how it ended.
    pub(in crate::proto) fn pin(&mut self, seq: u64) {
        let Some(stub) = self.stubs.get_mut(&seq) else { return };
        stub.pins = stub.pins.saturating_add(1);
        self.stripped.remove(&stub.place());
    }

    /// A task that depends on this one has ended.
    pub(in crate::proto) fn unpin(&mut self, seq: u64) {
        let Some(stub) = self.stubs.get_mut(&seq) else { return };
        stub.pins = stub.pins.saturating_sub(1);
        if stub.pins == 0 && stub.gone {
            self.stripped.insert(stub.place());
        }
    }

    /// A caller was given the result, which from now on goes before unread ones.
    pub(in crate::proto) fn mark_read(&mut self, seq: u64) {
        if let Some(stub) = self.stubs.get(&seq)
            && self.unread.remove(&stub.place())
        {
            self.read.insert(stub.place());
        }
    }

    /// The result of a task is gone.
    pub(in crate::proto) fn strip(&mut self, seq: u64) {
        let Some(stub) = self.stubs.get_mut(&seq) else { return };
        let place = stub.place();
        if self.unread.remove(&place) || self.read.remove(&place) {
            self.bytes = self.bytes.saturating_sub(stub.bytes);
        }
        stub.gone = true;
        if stub.pins == 0 {
            self.stripped.insert(place);
        }
    }

    /// Removes all that is left of a task.
    pub(in crate::proto) fn take(&mut self, seq: u64) -> Option<Stub> {
        self.strip(seq);
        self.take_as_it_is(seq)
    }

    fn take_as_it_is(&mut self, seq: u64) -> Option<Stub> {
        let stub = self.stubs.remove(&seq)?;
        let place = stub.place();
        if self.unread.remove(&place) || self.read.remove(&place) {
            self.bytes = self.bytes.saturating_sub(stub.bytes);
        }
        self.stripped.remove(&place);
        Some(stub)
    }

    /// Removes the stubs of durable tasks, and returns them.
    pub(in crate::proto) fn take_durable(&mut self) -> Vec<Stub> {
        let durable = self.stubs.values().filter(|stub| stub.durable);
        let durable: Vec<u64> = durable.map(|stub| stub.id.seq).collect();
        self.saved.clear();
        durable.into_iter().filter_map(|seq| self.take_as_it_is(seq)).collect()
    }

    /// What is to be dropped first, if anything is.
    pub(in crate::proto) fn due(&self, now: Duration, limits: &RetentionLimits) -> Option<Due> {
        let first_over = |order: &Order, kept_for: Duration| {
            let (ended, seq) = *order.first()?;
            (ended.saturating_add(millis(kept_for)) <= millis(now)).then_some(seq)
        };
        if let Some(seq) = first_over(&self.stripped, limits.keys_kept_for) {
            return Some(Due::Stub(seq));
        }
        let old = |order| first_over(order, limits.results_kept_for);
        if let Some(seq) = old(&self.read).or_else(|| old(&self.unread)) {
            return Some(Due::Result(seq));
        }
        let count = self.read.len() + self.unread.len();
        let over = self.bytes > limits.results_bytes_max || count > limits.results_max;
        let first = || self.read.first().or_else(|| self.unread.first());
        first().filter(|_| over).map(|(_, seq)| Due::Result(*seq))
    }

    /// The oldest unread result, where there are more than three.
    pub(in crate::proto) fn any_unread(&self) -> Option<u64> {
        self.unread.first().filter(|_| self.unread.len() > 3).map(|(_, seq)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{ModelRef, TaskState};
    use std::sync::Arc;

    fn stub(seq: u64) -> Stub {
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        Stub {
            id: TaskId { epoch: 1, seq },
            model: Arc::new(model),
            key: None,
            finished_ms: seq * 1_000,
            bytes: 100,
            pins: 0,
            state: TaskState::Succeeded,
            durable: true,
            gone: false,
        }
    }

    fn limits() -> RetentionLimits {
        RetentionLimits {
            results_kept_for: Duration::from_secs(100),
            results_bytes_max: 500,
            results_max: 50,
            keys_kept_for: Duration::from_secs(10),
            ..crate::proto::core::tests::config().retention
        }
    }

    fn go(records: &mut Retention, now_s: u64, limits: &RetentionLimits) -> Vec<u64> {
        let mut gone = Vec::new();
        while let Some(due) = records.due(Duration::from_secs(now_s), limits) {
            match due {
                Due::Stub(seq) => drop(records.take(seq)),
                Due::Result(seq) => {
                    gone.push(seq);
                    records.take(seq);
                }
            }
        }
        gone
    }

    #[test]
    fn what_was_read_goes_before_what_was_not_and_each_the_oldest_first() {
        let (mut records, limits) = (Retention::default(), limits());
        (1..=5).for_each(|seq| records.keep(stub(seq)));
        assert_eq!(records.due(Duration::from_secs(6), &limits), None);
        records.mark_read(4);
        records.mark_read(2);
        for (next, gone) in [(6, 2), (7, 4), (8, 1), (9, 3)] {
            records.keep(stub(next));
            assert_eq!(go(&mut records, next, &limits), [gone]);
        }
        assert_eq!(records.bytes, 500);
    }

    #[test]
    fn results_go_with_their_time_and_above_their_number() {
        let (mut records, limits) = (Retention::default(), limits());
        (1..=3).for_each(|seq| records.keep(stub(seq)));
        records.mark_read(3);
        assert_eq!(go(&mut records, 100, &limits), [0; 0]);
        assert_eq!(go(&mut records, 102, &limits), [1, 2], "read or not");
        let few = RetentionLimits { results_max: 2, ..limits };
        (4..=6).for_each(|seq| records.keep(stub(seq)));
        assert_eq!(go(&mut records, 10, &few), [3, 4]);
    }

    #[test]
    fn what_is_left_of_a_task_stays_for_its_key_and_for_those_that_depend_on_it() {
        let (mut records, limits) = (Retention::default(), limits());
        (1..=2).for_each(|seq| records.keep(stub(seq)));
        records.pin(2);
        (1..=2).for_each(|seq| records.strip(seq));
        assert_eq!(records.bytes, 0);
        assert_eq!(records.due(Duration::from_secs(10), &limits), None, "the keys are young");
        assert_eq!(records.due(Duration::from_secs(11), &limits), Some(Due::Stub(1)));
        assert!(records.take(1).is_some());
        assert_eq!(records.due(Duration::from_secs(50), &limits), None, "it is needed");
        records.unpin(2);
        assert_eq!(records.due(Duration::from_secs(50), &limits), Some(Due::Stub(2)));
    }

    #[test]
    fn the_oldest_records_leave_the_memory() {
        let mut records = Retention::default();
        for seq in 0..3 {
            records.hold(10);
            records.list(seq, false);
        }
        assert_eq!(records.pop_whole(2, 100), Some(0), "too many");
        records.release(10);
        assert_eq!(records.pop_whole(2, 100), None);
        assert_eq!(records.pop_whole(2, 19), Some(1), "too large");
        (3..6).for_each(|seq| records.list(seq, true));
        assert_eq!(records.pop_whole(16, 100), Some(3), "more than an eighth can be read back");
        assert_eq!(records.pop_whole(16, 100), None);
        assert_eq!(records.pop_whole(2, 100), Some(4), "and go first");
    }

    #[test]
    fn stubs_are_small() {
        assert!(size_of::<Stub>() <= 72, "{}", size_of::<Stub>());
    }
}
