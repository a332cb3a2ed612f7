//! Durable tasks: what goes to the journal, and what waits until the journal has it.
//!
//! A task is acknowledged, and may run, once the journal has it. Its end is shown once the
//! journal has that: what a caller saw is never taken back by a restart.

use crate::proto::core::Core;
use crate::proto::image::{Change, End, Image};
use crate::proto::queue::aged;
use crate::proto::state::{Action, Digest, Planted, Task, Timer};
use crate::proto::why::{What, note};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskId, TaskSpec, TaskState};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How soon what the journal could not take is tried again: a full disk is cleared by people.
const AGAIN: Duration = Duration::from_secs(1);

/// What waits for the journal.
#[derive(Debug)]
enum Pending {
    /// A task to be acknowledged.
    Accept(u64),
    /// A task whose end is known.
    End(u64),
    /// A record that nobody needs any more.
    Forget(TaskId),
}

/// Changes under way to the journal, by ticket.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tickets: u64,
    pending: BTreeMap<u64, Pending>,
    again: VecDeque<Pending>,
    /// Changes that the journal has taken, and commits that took some.
    pub(super) changes: u64,
    pub(super) commits: u64,
}

impl Task {
    pub(super) fn new(
        epoch: u64,
        submitted: Duration,
        spec: Arc<TaskSpec>,
        model: Arc<ModelRef>,
        digest: Digest,
    ) -> Self {
        Self {
            epoch,
            model,
            priority: spec.priority,
            state: TaskState::Queued,
            input_bytes: 0,
            queued_bytes: 0,
            submitted,
            due: aged(submitted, spec.priority),
            // A deadline beyond the end of time is none.
            deadline: spec.deadline.and_then(|d| submitted.checked_add(d)),
            retry_at: None,
            attempts: 0,
            failures: 0,
            budgeted: false,
            hedge_at: None,
            variant: None,
            moved: false,
            away_from: None,
            runs: Vec::new(),
            worker: None,
            queued: None,
            model_time: None,
            finished: None,
            outputs: None,
            error: None,
            key: spec.idempotency_key.clone().map(|key| (key, digest)),
            durable: spec.durable,
            saved: !spec.durable,
            ending: None,
            depends_on: spec.depends_on.clone(),
            waits: 0,
            dependants: Vec::new(),
            pins: 0,
            listed: false,
            notes: Vec::new(),
            spec: Some(spec),
        }
    }
}

impl Core {
    /// Whether the journal is to have the task.
    pub(super) fn is_durable(&self, seq: u64) -> bool {
        self.tasks.get(&seq).is_some_and(|task| task.durable)
    }

    /// Whether a task is acknowledged: the journal has it, or need not.
    pub(crate) fn is_saved(&self, id: TaskId) -> bool {
        self.tasks.get(&id.seq).is_none_or(|task| task.saved)
    }

    /// Whether a task's end is known and waits for the journal.
    pub(crate) fn is_ending(&self, id: TaskId) -> bool {
        self.tasks.get(&id.seq).is_some_and(|task| task.ending.is_some())
    }

    /// Asks the journal to keep a task.
    pub(super) fn save(&mut self, seq: u64) {
        if self.planted == Planted::AcceptEarly
            && let Some(task) = self.tasks.get_mut(&seq)
        {
            task.saved = true;
            self.actions.push_back(Action::Accepted { seq });
        }
        self.put(seq, Pending::Accept(seq));
    }

    /// Asks the journal to keep how a task ends, once it has the task itself. The record says so
    /// when that is done.
    pub(super) fn save_end(&mut self, seq: u64, end: End) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        task.ending = Some(Box::new(end));
        if task.saved {
            self.put(seq, Pending::End(seq));
        }
    }

    /// Asks the journal to drop a task's record.
    pub(super) fn forget(&mut self, id: TaskId) {
        self.order(Change::Remove(id), Pending::Forget(id));
    }

    fn put(&mut self, seq: u64, pending: Pending) {
        let Some(task) = self.tasks.get(&seq) else { return };
        let Some(spec) = task.spec.clone() else { return };
        let end = task.ending.as_deref().cloned();
        let spec = match end {
            // What has ended is not run again: its inputs would only take room.
            Some(_) => Arc::new(TaskSpec { inputs: Vec::new(), ..(*spec).clone() }),
            None => spec,
        };
        let image = Image {
            id: TaskId { epoch: task.epoch, seq },
            submitted: task.submitted,
            spec,
            digest: task.key.as_ref().map_or(Digest::default(), |(_, digest)| *digest),
            end,
            // Whoever keeps them knows where they are.
            apart: None,
        };
        self.order(Change::Put(Box::new(image)), pending);
    }

    fn order(&mut self, change: Change, pending: Pending) {
        self.ledger.tickets += 1;
        let ticket = self.ledger.tickets;
        self.ledger.pending.insert(ticket, pending);
        self.actions.push_back(Action::Record { ticket, change });
    }

    /// The journal has every change up to a ticket, but for those that it could not take.
    pub(crate) fn recorded(&mut self, now: Duration, upto: u64) {
        let later = self.ledger.pending.split_off(&(upto + 1));
        let taken = u64::try_from(self.ledger.pending.len()).unwrap_or(u64::MAX);
        self.ledger.changes += taken;
        self.ledger.commits += u64::from(taken > 0);
        for pending in std::mem::replace(&mut self.ledger.pending, later).into_values() {
            self.apply(now, pending);
        }
        self.schedule(now);
    }

    fn apply(&mut self, now: Duration, pending: Pending) {
        match pending {
            Pending::Accept(seq) => {
                let Some(task) = self.tasks.get_mut(&seq) else { return };
                task.saved = true;
                let ended = task.ending.is_some();
                note(&mut task.notes, now, What::Saved);
                self.actions.push_back(Action::Accepted { seq });
                if ended {
                    self.put(seq, Pending::End(seq));
                }
                self.enqueue(seq);
            }
            Pending::End(seq) => {
                let end = self.tasks.get_mut(&seq).and_then(|task| task.ending.take());
                if let Some(end) = end {
                    self.settle(now, seq, *end);
                }
            }
            Pending::Forget(_) => {}
        }
    }

    /// The journal could not take a change, but may later.
    pub(crate) fn unrecorded(&mut self, now: Duration, ticket: u64, reason: &str) {
        match self.ledger.pending.remove(&ticket) {
            Some(Pending::Accept(seq)) => self.reject(now, seq, reason),
            Some(again) => {
                if let Pending::End(seq) = &again
                    && let Some(task) = self.tasks.get_mut(seq)
                {
                    note(&mut task.notes, now, What::Unsaved { reason: reason.to_owned() });
                }
                if self.ledger.again.is_empty() {
                    self.timers.insert((now + AGAIN, Timer::Journal));
                }
                self.ledger.again.push_back(again);
            }
            None => {}
        }
    }

    /// Sends again what the journal could not take.
    pub(super) fn record_again(&mut self) {
        for pending in std::mem::take(&mut self.ledger.again) {
            match pending {
                Pending::Accept(seq) | Pending::End(seq) => self.put(seq, pending),
                Pending::Forget(id) => self.forget(id),
            }
        }
    }

    /// Forgets a task that was never acknowledged.
    fn reject(&mut self, now: Duration, seq: u64, reason: &str) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        // Its end, which the journal does not need then, is no end of an accepted task.
        task.ending = None;
        let id = TaskId { epoch: task.epoch, seq };
        let dependants = std::mem::take(&mut task.dependants);
        self.unpin(seq);
        self.remove(seq);
        self.history.submitted -= 1;
        self.actions.push_back(Action::Rejected { seq, reason: reason.to_owned() });
        self.actions.push_back(Action::Changed);
        for dependant in dependants {
            let message = format!("task {id}, on which it depends, was not accepted: {reason}");
            let error = TaskError::new(TaskErrorKind::DependencyFailed, message);
            self.abort(now, dependant, TaskState::Failed, error);
        }
    }

    /// Takes a task away as if it had never been.
    fn remove(&mut self, seq: u64) {
        let Some(task) = self.tasks.remove(&seq) else { return };
        self.queue.remove(&task.model, task.place(seq));
        if task.state == TaskState::Queued {
            self.queued_bytes = self.queued_bytes.saturating_sub(task.queued_bytes);
        }
        if let Some(deadline) = task.deadline {
            self.timers.remove(&(deadline, Timer::Deadline(seq)));
        }
        self.free_key(seq, &task);
    }

    /// Goes on with what an earlier life left in the journal. Must come before anything else.
    pub(crate) fn restore(&mut self, now: Duration, mut images: Vec<Image>) {
        if self.planted == Planted::ForgetJournal {
            return;
        }
        // Those that have ended first: open ones may need their records.
        images.sort_unstable_by_key(|image| (image.end.is_none(), image.id.seq));
        let mut failed = Vec::new();
        for image in images {
            let Image { id, submitted, spec, digest, end, apart } = image;
            let here = spec.inputs.iter().map(|input| input.tensor.as_bytes().len()).sum();
            let apart = apart.map(|apart| usize::try_from(apart.blob.bytes).unwrap_or(usize::MAX));
            let model = Arc::new(spec.model.clone());
            let mut task = Task::new(id.epoch, submitted, spec, model, digest);
            (task.input_bytes, task.queued_bytes) = (apart.unwrap_or(here), here);
            task.saved = true;
            note(&mut task.notes, now, What::Restored);
            self.next_seq = self.next_seq.max(id.seq + 1);
            self.history.submitted += 1;
            match end {
                Some(end) => {
                    task.deadline = None;
                    self.insert(id.seq, task);
                    self.settle(now, id.seq, end);
                }
                None => {
                    // What it depends on was submitted first, and stays while it waits.
                    if let Some(dependency) = self.depend(id.seq, &mut task) {
                        failed.push((id.seq, dependency));
                    }
                    self.insert(id.seq, task);
                    self.enqueue(id.seq);
                }
            }
        }
        for (seq, dependency) in failed {
            self.fail_dependant(now, seq, dependency);
        }
        self.history.forget_times();
        // Nobody waits for what was done before.
        self.actions.retain(|action| !matches!(action, Action::Finished { .. }));
        self.schedule(now);
    }
}
