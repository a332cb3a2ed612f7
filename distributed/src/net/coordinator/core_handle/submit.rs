//! Requests of callers to the core: to take tasks, and to tell how they ended.

use super::{CoreHandle, State};
use crate::error::{Error, Result};
use crate::net::coordinator::backlog::Room;
use crate::net::coordinator::waiting::{Promise, Waiting};
use crate::net::transfer::blobs::Claim;
use crate::net::transfer::tensors::Large;
use crate::proto::Order;
use crate::proto::core::Found;
use crate::proto::state::Digest;
use crate::task::{TaskId, TaskRecord, TaskState};
use std::slice;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// The result of a submission.
pub(crate) enum Submitted<T, S> {
    Now(T),
    /// Keys of it stand for tasks that the journal may yet refuse: submit it again after that.
    After(Undecided, S),
}

/// The tasks of a submission; with a promise, they are accepted once the journal has them.
pub(crate) type Taken = (Vec<TaskId>, Option<Promise<()>>);

/// The journal's results for tasks, which are still to come.
pub(crate) struct Undecided(Vec<Promise<()>>);

impl Undecided {
    /// Waits until the journal has them or has refused them.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) async fn decided(self) -> Result<()> {
        for promise in self.0 {
            // Either way the caller asks again what the key stands for.
            if let Err(Error::Stopped) = promise.answer().await {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }
}

/// A task that may be submitted, and its inputs where they are large.
pub(crate) type Checked = (Order, Option<Inputs>);

/// Large inputs of a submission, and the claim that keeps their file until the task has it.
pub(crate) struct Inputs {
    pub(crate) large: Arc<Large>,
    pub(crate) claim: Option<Claim>,
}

/// A task's final record, or where it will arrive.
enum Ending {
    Done(Box<TaskRecord>),
    /// The journal has the record.
    Stored(TaskId),
    ToCome(oneshot::Receiver<Result<TaskRecord>>),
}

impl CoreHandle {
    /// Submits a task that lives in memory.
    pub(crate) fn submit(self: &Arc<Self>, (order, large): Checked) -> Result<TaskId> {
        let mut state = self.lock();
        let id = state.core.submit(self.now(), order)?;
        state.note(id, large);
        self.carry_out(&mut state);
        Ok(id)
    }

    /// Submits a task and adds a waiter for it in the same step.
    pub(crate) fn submit_and_wait(
        self: &Arc<Self>,
        (order, large): Checked,
        room: &mut Option<Room>,
    ) -> Result<Submitted<Waiting, Checked>> {
        let mut state = self.lock();
        let undecided = state.core.undecided(slice::from_ref(&order));
        if !undecided.is_empty() {
            return Ok(Submitted::After(self.undecided(state, &undecided), (order, large)));
        }
        let now = self.now();
        let id = state.core.submit(now, order)?;
        state.note(id, large);
        let ending = state.wait(now, id)?;
        self.save(&mut state, room);
        drop(state);
        Ok(Submitted::Now(self.waiting(id, ending)))
    }

    /// Submits tasks; for new durable ones, also returns the promise of the journal's result: the
    /// journal takes them together or not at all.
    pub(crate) fn submit_all(
        self: &Arc<Self>,
        tasks: Vec<Checked>,
        room: &mut Option<Room>,
    ) -> Result<Submitted<Taken, Vec<Checked>>> {
        let (orders, larges): (Vec<Order>, Vec<_>) = tasks.into_iter().unzip();
        let mut state = self.lock();
        let undecided = state.core.undecided(&orders);
        if !undecided.is_empty() {
            let again = orders.into_iter().zip(larges).collect();
            return Ok(Submitted::After(self.undecided(state, &undecided), again));
        }
        let ids = state.core.submit_all(self.now(), orders)?;
        for (id, large) in ids.iter().zip(larges) {
            state.note(*id, large);
        }
        let unsaved = ids.iter().rev().find(|id| !state.core.is_saved(**id)).copied();
        let receiver = unsaved.map(|id| (id.seq, state.callers.await_acceptance(id.seq)));
        self.save(&mut state, room);
        drop(state);
        let promise = receiver.map(|(seq, receiver)| Promise::new(self, seq, receiver));
        Ok(Submitted::Now((ids, promise)))
    }

    /// The task that an idempotency key stands for, and the digest of its request.
    pub(crate) fn keyed(self: &Arc<Self>, key: &str) -> Submitted<Option<(TaskId, Digest)>, ()> {
        let state = self.lock();
        match state.core.keyed(key) {
            Some((id, _, false)) => Submitted::After(self.undecided(state, &[id.seq]), ()),
            known => Submitted::Now(known.map(|(id, digest, _)| (id, digest))),
        }
    }

    /// Carries out the actions of a submission, with its room at the journal.
    fn save(self: &Arc<Self>, state: &mut State, room: &mut Option<Room>) {
        state.journal.room = room.take();
        self.carry_out(state);
        // The room is left over if no task of the submission is new.
        state.journal.room = None;
    }

    fn undecided(self: &Arc<Self>, mut state: MutexGuard<'_, State>, seqs: &[u64]) -> Undecided {
        let receivers = seqs.iter().map(|seq| (*seq, state.callers.await_acceptance(*seq)));
        let receivers: Vec<_> = receivers.collect();
        // Promises are made without the lock, because dropping one takes it.
        drop(state);
        let promises = receivers.into_iter().map(|(seq, it)| Promise::new(self, seq, it));
        Undecided(promises.collect())
    }

    /// A task's record for a caller; its result counts as read.
    pub(crate) fn give(&self, id: TaskId) -> Result<Found> {
        let now = self.now();
        self.lock().core.give(now, id)
    }

    /// Discards the result of an ended task; returns how the task ended, and the receiver for the
    /// journal's result, if the journal has to hear of it.
    pub(crate) fn let_go(
        self: &Arc<Self>,
        id: TaskId,
    ) -> Result<(TaskState, Option<oneshot::Receiver<()>>)> {
        let mut state = self.lock();
        let (ended, stored) = state.core.let_go(self.now(), id)?;
        let receiver = stored.then(|| state.callers.await_removal(id.seq));
        self.carry_out(&mut state);
        Ok((ended, receiver))
    }

    /// The record of a terminal task, or the promise of it.
    pub(crate) fn wait(self: &Arc<Self>, id: TaskId) -> Result<Waiting> {
        let now = self.now();
        let ending = self.lock().wait(now, id)?;
        Ok(self.waiting(id, ending))
    }

    fn waiting(self: &Arc<Self>, id: TaskId, ending: Ending) -> Waiting {
        match ending {
            Ending::Done(record) => Waiting::Done(record),
            Ending::Stored(id) => Waiting::Stored(id),
            Ending::ToCome(receiver) => Waiting::Promise(Promise::new(self, id.seq, receiver)),
        }
    }

    /// Drops waiters of a task that went away.
    pub(in crate::net::coordinator) fn forget_gone(&self, seq: u64) {
        self.lock().callers.drop_gone(seq);
    }

    /// How many waiters there are.
    #[cfg(test)]
    pub(in crate::net::coordinator) fn waiters(&self) -> usize {
        self.lock().callers.waiting()
    }
}

impl State {
    /// Keeps large inputs with a task, unless the task was submitted before.
    fn note(&mut self, id: TaskId, inputs: Option<Inputs>) {
        let Some(Inputs { large, claim }) = inputs else { return };
        if self.core.is_open(id) && !self.larges.contains_key(&id.seq) {
            self.larges.insert(id.seq, large);
            claim.into_iter().for_each(Claim::keep);
        }
    }

    fn wait(&mut self, now: Duration, id: TaskId) -> Result<Ending> {
        if !self.core.is_open(id) {
            return Ok(match self.core.give(now, id)? {
                Found::Stored(id) => Ending::Stored(id),
                Found::Here(record) => Ending::Done(record),
            });
        }
        if self.stopped {
            // A durable task goes on with the next coordinator; no waiter here hears of its end.
            return Err(Error::Stopped);
        }
        Ok(Ending::ToCome(self.callers.await_end(id.seq)))
    }
}
