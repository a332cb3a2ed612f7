//! Tasks, with their phases and dependencies, and the tasks that idempotency keys stand for.
//!
//! A task changes its phase only through an [`Entry`], which keeps the counts.

mod entry;
mod links;
mod outcome;
mod phase;
mod request;
mod task;
mod tries;
mod why;

pub(super) use entry::{Counts, Entry};
pub(super) use phase::{Phase, Run};
pub(super) use request::Request;
pub(super) use task::Task;
pub(super) use tries::TryEnd;
pub(super) use why::{Recall, What};

use crate::proto::state::Digest;
use crate::task::{TaskId, TaskState};
use crate::worker_info::TaskCounts;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Every task whose whole record is in memory.
#[derive(Debug)]
pub(super) struct Tasks {
    /// Boxed: whole tasks would be moved whenever a node of the map is split or shifted.
    tasks: BTreeMap<u64, Box<Task>>,
    next_seq: u64,
    /// The first number of this epoch.
    first_seq: u64,
    /// No other coordinator takes numbers from `first_seq` on.
    numbers_are_own: bool,
    /// The task that each idempotency key stands for.
    keys: HashMap<Arc<str>, (TaskId, Digest)>,
    counts: Counts,
    /// Tasks that have ended and whose dependants have not been told yet.
    settled: VecDeque<u64>,
}

impl Tasks {
    /// No tasks yet. Numbers go on after those of earlier coordinators, unless `first_seq` is
    /// given.
    pub(super) fn new(first_seq: Option<u64>) -> Self {
        let first = first_seq.unwrap_or(1);
        Self {
            tasks: BTreeMap::new(),
            next_seq: first,
            first_seq: first,
            numbers_are_own: first_seq.is_some(),
            keys: HashMap::new(),
            counts: Counts::default(),
            settled: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, seq: u64) -> Option<&Task> {
        self.tasks.get(&seq).map(|task| &**task)
    }

    /// A task, to be changed.
    pub(super) fn entry(&mut self, seq: u64) -> Option<Entry<'_>> {
        let task = self.tasks.get_mut(&seq)?;
        Some(Entry::new(task, &mut self.counts))
    }

    /// The task of an id; `None` where the number belongs to a task of another epoch.
    pub(super) fn of(&self, id: TaskId) -> Option<&Task> {
        self.get(id.seq).filter(|task| task.id() == id)
    }

    /// Every task, in the order of submission.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Task> {
        self.tasks.values().map(|task| &**task)
    }

    /// Tasks below a number, in descending order.
    pub(super) fn below(&self, seq: u64) -> impl Iterator<Item = &Task> {
        self.tasks.range(..seq).rev().map(|(_, task)| &**task)
    }

    /// Takes the next number.
    pub(super) fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Skips a number that an earlier coordinator took.
    pub(super) fn pass(&mut self, seq: u64) {
        if !self.numbers_are_own {
            self.next_seq = self.next_seq.max(seq.saturating_add(1));
        }
    }

    /// Begins this epoch: every number that earlier coordinators took was passed.
    pub(super) fn begin(&mut self) {
        if !self.numbers_are_own {
            self.first_seq = self.next_seq;
        }
    }

    /// Whether a number was taken by this coordinator.
    pub(super) fn took(&self, seq: u64) -> bool {
        (self.first_seq..self.next_seq).contains(&seq)
    }

    /// Uncounts an ended task that belongs to another coordinator now.
    pub(super) fn uncount(&mut self, state: TaskState) {
        self.counts.forget(state);
    }

    /// Counts a task that ended under an earlier coordinator.
    pub(super) fn count_past(&mut self, state: TaskState) {
        self.counts.past(state);
    }

    /// Adds a task; `saved` says that the journal has it, or need not have it.
    pub(super) fn insert(&mut self, mut task: Task, saved: bool) {
        let seq = task.id().seq;
        self.pass(seq);
        if let Some((key, digest)) = task.request().key() {
            self.keys.insert(key.as_str().into(), (task.id(), *digest));
        }
        task.enter(saved);
        self.counts.submit(task.request().queued_bytes());
        self.tasks.insert(seq, Box::new(task));
    }

    /// Takes a task away as if it had never been.
    pub(super) fn retract(&mut self, seq: u64) -> Option<Box<Task>> {
        let task = self.take(seq)?;
        if let Some((key, _)) = task.request().key() {
            self.forget_key(key, task.id());
        }
        self.counts.retract(&task);
        Some(task)
    }

    /// Removes the whole record of a task that has ended. The task's key still stands for it.
    pub(super) fn take(&mut self, seq: u64) -> Option<Box<Task>> {
        self.tasks.remove(&seq)
    }

    /// Sets a key for a task whose whole record is not in memory.
    pub(super) fn set_key(&mut self, key: Arc<str>, id: TaskId, digest: Digest) {
        self.keys.insert(key, (id, digest));
    }

    /// Removes a key if it stands for this task.
    pub(super) fn forget_key(&mut self, key: &str, id: TaskId) {
        if self.keys.get(key).is_some_and(|(holder, _)| *holder == id) {
            self.keys.remove(key);
        }
    }

    /// The shared copy of a key that stands for a task.
    pub(super) fn shared_key(&self, key: &str) -> Option<Arc<str>> {
        self.keys.get_key_value(key).map(|(key, _)| Arc::clone(key))
    }

    /// The task that an idempotency key stands for, and the digest of its request.
    pub(super) fn by_key(&self, key: &str) -> Option<(TaskId, &Digest)> {
        self.keys.get(key).map(|(id, digest)| (*id, digest))
    }

    /// Removes the key of a task before its record is removed.
    #[cfg(feature = "planted")]
    pub(super) fn lose_key(&mut self, seq: u64) {
        let key = self.tasks.get(&seq).and_then(|task| task.request().key());
        if let Some((key, _)) = key {
            self.keys.remove(key.as_str());
        }
    }

    /// Tasks by state.
    pub(super) fn counts(&self) -> TaskCounts {
        self.counts.by_state()
    }

    /// Tasks that have not ended.
    pub(super) fn open(&self) -> u64 {
        self.counts.open()
    }

    /// Bytes of the inputs of tasks that do not run.
    pub(super) fn queued_bytes(&self) -> usize {
        self.counts.queued_bytes()
    }

    /// Queues an ended task whose dependants are to be told. True if no caller tells them yet: ends
    /// cause further ends, which are told one after another, because chains may be long.
    pub(super) fn announce(&mut self, seq: u64) -> bool {
        self.settled.push_back(seq);
        self.settled.len() == 1
    }

    /// The ended task whose dependants are told next. It stays until they have been told.
    pub(super) fn announced(&self) -> Option<u64> {
        self.settled.front().copied()
    }

    /// The dependants of that task have been told.
    pub(super) fn heard(&mut self) {
        self.settled.pop_front();
    }

    /// Panics where a count differs from a count over all tasks, of which `queued` are queued.
    #[cfg(feature = "planted")]
    pub(super) fn check(&self, queued: usize) {
        let count = |is: fn(&Task) -> bool| self.iter().filter(|task| is(task)).count();
        let of = |n: u64| usize::try_from(n).expect("few");
        assert_eq!(of(self.open()), count(|task| !task.is_terminal()));
        assert_eq!(of(self.counts().running), count(|task| task.state() == TaskState::Running));
        assert_eq!(queued, count(Task::is_ready));
        let waiting = self.iter().filter(|task| task.state() == TaskState::Queued);
        let bytes: usize = waiting.map(|task| task.request().queued_bytes()).sum();
        assert_eq!(self.queued_bytes(), bytes);
    }
}
