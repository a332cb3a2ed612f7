//! Results of ended tasks: which are in memory, which in the journal, and which are gone.

use super::Core;
use crate::error::{Error, Result};
use crate::proto::ledger::{Due, Stub};
use crate::proto::tasks::Task;
use crate::task::{ModelRef, TaskId, TaskRecord, TaskSpec, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// The record of a task that a caller asks for.
#[derive(Debug)]
pub enum Found<T = Box<TaskRecord>> {
    Here(T),
    /// The record is in the journal.
    Stored(TaskId),
}

#[cfg(test)]
impl<T> Found<T> {
    /// The value, which has to be in memory.
    pub(crate) fn here(self) -> T {
        match self {
            Self::Here(here) => here,
            Self::Stored(id) => panic!("task {id} is in the journal"),
        }
    }
}

/// The state of a task, and whether the task is durable and so the leader's.
pub(crate) struct Standing {
    pub(crate) state: TaskState,
    pub(crate) durable: bool,
}

impl Core {
    /// A task whose whole record is in memory.
    pub(super) fn whole(&self, id: TaskId) -> Result<Found<&Task>> {
        if let Some(task) = self.tasks.of(id) {
            return Ok(Found::Here(task));
        }
        match self.ledger.records().of(id) {
            Some(stub) if !stub.gone => Ok(Found::Stored(id)),
            Some(_) => Err(Error::Expired { id }),
            None => Err(self.missing(id)),
        }
    }

    /// Whether the record of a task is in the journal alone.
    pub(crate) fn is_stored(&self, id: TaskId) -> Result<bool> {
        Ok(matches!(self.whole(id)?, Found::Stored(_)))
    }

    /// A task's record as it is now.
    pub fn find(&self, now: Duration, id: TaskId) -> Result<Found> {
        Ok(match self.whole(id)? {
            Found::Here(task) => Found::Here(Box::new(task.record(now))),
            Found::Stored(id) => Found::Stored(id),
        })
    }

    /// As [`Core::find`], for a caller that is given the record.
    pub(crate) fn give(&mut self, now: Duration, id: TaskId) -> Result<Found> {
        let found = self.find(now, id)?;
        self.given(id.seq);
        Ok(found)
    }

    /// A caller was given a task's record, and its result if the task has ended.
    pub fn given(&mut self, seq: u64) {
        self.ledger.records_mut().mark_read(seq);
    }

    /// The state of a task.
    pub(crate) fn state(&self, id: TaskId) -> Result<TaskState> {
        self.standing(id).map(|standing| standing.state).ok_or_else(|| self.missing(id))
    }

    /// The model of a task.
    pub(crate) fn model_of(&self, id: TaskId) -> Result<Arc<ModelRef>> {
        let here = self.tasks.of(id).map(|task| Arc::clone(task.model()));
        let known = || self.ledger.records().of(id).map(|stub| Arc::clone(&stub.model));
        here.or_else(known).ok_or_else(|| self.missing(id))
    }

    /// Whether anything is known of a task.
    pub(crate) fn knows(&self, id: TaskId) -> bool {
        self.standing(id).is_some()
    }

    pub(crate) fn standing(&self, id: TaskId) -> Option<Standing> {
        let here = self.tasks.of(id).map(|task| {
            let (state, durable) = (task.state(), task.request().is_durable());
            Standing { state, durable }
        });
        let known = || self.ledger.records().of(id);
        here.or_else(|| known().map(|stub| Standing { state: stub.state, durable: stub.durable }))
    }

    /// Why nothing is known of a task.
    pub(super) fn missing(&self, id: TaskId) -> Error {
        let accepted = match id.epoch == self.config.epoch {
            true => self.tasks.took(id.seq),
            false => self.ledger.knows(id.epoch),
        };
        if accepted { Error::Expired { id } } else { Error::UnknownTask { id: id.to_string() } }
    }

    /// The request of a task that ended without success, for another task: without its key, which
    /// stands for the task that ended.
    pub(crate) fn again(&self, id: TaskId) -> Result<TaskSpec> {
        let state = self.state(id)?;
        if !state.is_terminal() {
            return Err(Error::NotEnded { id, state });
        }
        let spec = self.ledger.spent().get(id).ok_or(Error::InputsGone { id, state })?;
        let mut spec = TaskSpec::clone(spec);
        (spec.idempotency_key, spec.request_digest) = (None, None);
        Ok(spec)
    }

    /// Discards the result of an ended task. Returns how the task ended, and whether the journal is
    /// yet to hear of it.
    pub(crate) fn let_go(&mut self, now: Duration, id: TaskId) -> Result<(TaskState, bool)> {
        let state = match self.whole(id)? {
            Found::Here(task) if !task.is_terminal() => {
                return Err(Error::NotEnded { id, state: task.state() });
            }
            Found::Here(task) => task.state(),
            Found::Stored(_) => self.state(id)?,
        };
        let durable = self.ledger.records().of(id).is_some_and(|stub| stub.durable);
        self.lose_result(now, id.seq);
        Ok((state, durable))
    }

    /// Drops the oldest whole records from memory, and results whose time is over or for which
    /// there is no room.
    pub(super) fn evict_records(&mut self, now: Duration) {
        let limits = self.config.retention;
        let (max, bytes_max) = (limits.retained_tasks_max, limits.retained_bytes_max);
        while let Some(seq) = self.ledger.records_mut().pop_whole(max, bytes_max) {
            self.leave_memory(seq);
        }
        while let Some(due) = self.ledger.records().due(now, &limits) {
            match due {
                Due::Stub(seq) => self.drop_stub(seq),
                Due::Result(seq) => self.lose_result(now, seq),
            }
        }
        if planted!(self, ForgetUnread)
            && let Some(seq) = self.ledger.records().any_unread()
        {
            self.lose_result(now, seq);
        }
    }

    /// It is a whole record's turn to leave the memory. A record that others need, and of which no
    /// stub would be left, goes when they need it no more.
    fn leave_memory(&mut self, seq: u64) {
        let stub = self.ledger.records().get(seq).map(|stub| stub.durable);
        match (stub, self.tasks.entry(seq)) {
            (None, Some(mut task)) if task.is_pinned() => {
                task.list(false);
                return;
            }
            // The record is only in memory; its key still stands.
            (Some(false), _) => self.ledger.records_mut().strip(seq),
            _ => {}
        }
        self.release(seq);
    }

    fn release(&mut self, seq: u64) {
        if let Some(task) = self.tasks.take(seq) {
            self.ledger.records_mut().release(task.retained_bytes());
        }
    }

    /// Drops a result. The rest that is needed of its task stays, in the journal too.
    fn lose_result(&mut self, now: Duration, seq: u64) {
        self.release(seq);
        self.ledger.records_mut().strip(seq);
        let kept_for = self.config.retention.keys_kept_for;
        let left = self.ledger.records().get(seq);
        match left.map(|stub| (stub.is_needed(now, kept_for), stub.durable)) {
            Some((true, true)) => self.strip_image(seq),
            Some((false, _)) => self.drop_stub(seq),
            _ => {}
        }
    }

    /// Drops a task of which nothing is needed any more.
    fn drop_stub(&mut self, seq: u64) {
        let Some(Stub { id, key, durable, .. }) = self.ledger.records_mut().take(seq) else {
            return;
        };
        if let Some(key) = key {
            self.tasks.forget_key(&key, id);
        }
        if durable {
            self.forget(id);
        }
    }
}
