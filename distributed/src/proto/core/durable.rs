//! Durable tasks: what goes to the journal, and what waits until the journal has it.
//!
//! A task is acknowledged, and may run, once the journal has it. Its end is shown once the journal
//! has the end: a restart never takes back what a caller saw.

use super::{Core, Order};
use crate::proto::image::{Apart, Change, End, Image};
use crate::proto::ledger::Pending;
use crate::proto::state::{Action, Digest};
use crate::proto::tasks::{Task, What};
use crate::proto::timers::Timer;
use crate::task::{TaskError, TaskErrorKind, TaskId, TaskSpec, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// How soon a change that the journal could not take is tried again: people clear a full disk.
const AGAIN: Duration = Duration::from_secs(1);

impl Core {
    /// Asks the journal to keep the durable ones of new tasks. Until it has them, all of them wait.
    pub(super) fn save(&mut self, seqs: Vec<u64>) {
        if planted!(self, AcceptEarly) {
            for seq in &seqs {
                if let Some(mut task) = self.tasks.entry(*seq) {
                    task.saved();
                    self.actions.push(Action::Accepted { seq: *seq });
                }
                self.enqueue(*seq);
            }
        }
        if planted!(self, SplitBatch) {
            let durable: Vec<u64> = seqs.into_iter().filter(|seq| self.is_durable(*seq)).collect();
            return durable.into_iter().for_each(|seq| self.put(seq, Pending::Accept(vec![seq])));
        }
        let mut images = Vec::with_capacity(seqs.len());
        let durable = seqs.iter().filter(|seq| self.is_durable(**seq));
        images.extend(durable.filter_map(|seq| self.image(*seq)));
        images.shrink_to_fit();
        self.order(Change::Put(images), Pending::Accept(seqs));
    }

    fn is_durable(&self, seq: u64) -> bool {
        self.tasks.get(seq).is_some_and(|task| task.request().is_durable())
    }

    /// Tasks that keys of a submission stand for and that the journal may yet refuse.
    pub(crate) fn undecided(&self, orders: &[Order]) -> Vec<u64> {
        let keys = orders.iter().filter_map(|order| order.spec.idempotency_key.as_ref());
        let known = keys.filter_map(|key| self.tasks.by_key(key).map(|(id, _)| id.seq));
        known.filter(|seq| self.tasks.get(*seq).is_some_and(|task| !task.is_saved())).collect()
    }

    /// Asks the journal to keep a task's end, once it has the task itself. The end is shown once
    /// the journal has it.
    pub(super) fn save_end(&mut self, seq: u64, end: End) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        task.end(end);
        if task.is_saved() {
            self.record_end(seq);
        }
    }

    /// Asks the journal to keep an end; many outputs are first stored outside the journal.
    fn record_end(&mut self, seq: u64) {
        let Some(end) = self.tasks.get(seq).and_then(Task::ending) else { return };
        match &end.result {
            Ok(outputs)
                if end.apart.is_none()
                    && end.bytes() > self.config.retention.outputs_inline_max =>
            {
                let outputs = outputs.clone();
                self.actions.push(Action::Store { seq, outputs });
            }
            _ => self.put(seq, Pending::End(seq)),
        }
    }

    /// Outputs are stored, or there was no room for them: then the journal keeps them if it can.
    /// False when the task does not wait for that.
    pub fn stored(&mut self, seq: u64, apart: Option<Apart>) -> bool {
        let Some(mut task) = self.tasks.entry(seq) else { return false };
        if planted!(self, ForgetStored) || !task.lie_apart(apart) {
            return false;
        }
        self.put(seq, Pending::End(seq));
        true
    }

    /// Asks the journal to drop a task's record.
    pub(super) fn forget(&mut self, id: TaskId) {
        self.order(Change::Remove(id), Pending::Forget(id));
    }

    /// Asks the journal to keep a task without its result.
    pub(super) fn strip_image(&mut self, seq: u64) {
        let Some(stub) = self.ledger.records().get(seq) else { return };
        let key = stub.key.as_deref();
        let digest = key.and_then(|key| self.tasks.by_key(key)).map(|(_, digest)| *digest);
        let mut spec = TaskSpec::new((*stub.model).clone(), Vec::new());
        (spec.durable, spec.idempotency_key) = (true, key.map(ToOwned::to_owned));
        let image = Image {
            id: stub.id,
            submitted: stub.finished(),
            spec: Arc::new(spec),
            digest: digest.unwrap_or_default(),
            end: Some(End::without_result(stub.state, stub.finished())),
            apart: None,
            gone: true,
        };
        self.order(Change::Put(vec![image]), Pending::Strip(seq));
    }

    fn put(&mut self, seq: u64, pending: Pending) {
        if let Some(image) = self.image(seq) {
            self.order(Change::Put(vec![image]), pending);
        }
    }

    fn image(&self, seq: u64) -> Option<Image> {
        let task = self.tasks.get(seq)?;
        let spec = task.request().spec().cloned()?;
        let end = task.ending().map(|end| End { story: task.story(end), ..end.to_keep() });
        Some(Image {
            id: task.id(),
            submitted: task.request().submitted(),
            spec,
            digest: task.request().key().map_or(Digest::default(), |(_, digest)| *digest),
            end,
            // The core's handle adds it, because it keeps large inputs.
            apart: None,
            gone: false,
        })
    }

    fn order(&mut self, change: Change, pending: Pending) {
        let ticket = self.ledger.send(pending);
        self.actions.push(Action::Record { ticket, change });
    }

    /// The journal has every change up to a ticket, except those that it could not take.
    pub fn recorded(&mut self, now: Duration, upto: u64) {
        for pending in self.ledger.taken(upto) {
            self.apply(now, pending);
        }
        self.schedule(now);
    }

    fn apply(&mut self, now: Duration, pending: Pending) {
        match pending {
            Pending::Accept(seqs) => seqs.into_iter().for_each(|seq| self.accepted(now, seq)),
            Pending::End(seq) => self.show_end(now, seq),
            Pending::Strip(seq) | Pending::Forget(TaskId { seq, .. }) => {
                self.actions.push(Action::Forgotten { seq });
            }
        }
    }

    /// The journal has a task, or those that it came with.
    fn accepted(&mut self, now: Duration, seq: u64) {
        let Some(mut task) = self.tasks.entry(seq) else { return };
        task.saved();
        let durable = task.request().is_durable();
        if durable {
            task.note(now, What::Saved);
        }
        let is_ending = task.is_ending();
        self.actions.push(Action::Accepted { seq });
        match (is_ending, durable) {
            (false, _) => self.enqueue(seq),
            (true, true) => self.record_end(seq),
            (true, false) => self.show_end(now, seq),
        }
    }

    /// Shows the end of a task, which waited for the journal.
    fn show_end(&mut self, now: Duration, seq: u64) {
        if self.tasks.entry(seq).is_some_and(|mut task| task.settle_ending()) {
            self.settled(now, seq);
        }
    }

    /// The journal could not take a change, but may later.
    pub fn unrecorded(&mut self, now: Duration, ticket: u64, reason: &str) {
        match self.ledger.refused(ticket) {
            Some(Pending::Accept(seqs)) => self.reject(now, &seqs, reason),
            Some(again) => {
                if let Pending::End(seq) = &again
                    && let Some(mut task) = self.tasks.entry(*seq)
                {
                    task.note(now, What::Unsaved { reason: reason.to_owned() });
                }
                if self.ledger.put_back(again) {
                    self.timers.set(now + AGAIN, Timer::Journal);
                }
            }
            None => {}
        }
    }

    /// Sends changes again that the journal could not take.
    pub(super) fn record_again(&mut self) {
        for pending in self.ledger.take_again() {
            match pending {
                // A submission is refused once, and for good.
                Pending::Accept(_) => {}
                Pending::End(seq) => self.record_end(seq),
                Pending::Strip(seq) => self.strip_image(seq),
                Pending::Forget(id) => self.forget(id),
            }
        }
    }

    /// Forgets tasks that were never acknowledged.
    pub(super) fn reject(&mut self, now: Duration, seqs: &[u64], reason: &str) {
        let mut left = Vec::new();
        for &seq in seqs {
            let Some(mut task) = self.tasks.entry(seq) else { continue };
            let id = task.id();
            left.extend(task.take_dependants().into_iter().map(|seq| (seq, id)));
            self.unpin(seq);
            // Its end, where that is known, is no end of an accepted task.
            self.remove(seq);
            self.actions.push(Action::Rejected { seq, reason: reason.to_owned() });
        }
        self.actions.changed();
        // These are tasks of later submissions: the others were removed together.
        for (dependant, id) in left {
            let message = format!("task {id}, on which it depends, was not accepted: {reason}");
            let error = TaskError::new(TaskErrorKind::DependencyFailed, message);
            self.abort(now, dependant, TaskState::Failed, error);
        }
    }

    /// Removes a task as if it had never been.
    fn remove(&mut self, seq: u64) {
        let Some(task) = self.tasks.retract(seq) else { return };
        self.scheduler.dequeue(&task);
        if let Some(deadline) = task.request().deadline() {
            self.timers.clear(deadline, Timer::Deadline(seq));
        }
    }
}
