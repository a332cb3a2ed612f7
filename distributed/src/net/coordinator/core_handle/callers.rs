//! Callers that wait for a task's end, or for the journal's result on it.

use crate::error::{Error, Result};
use crate::net::outside::planted_here;
use crate::task::TaskRecord;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokio::sync::oneshot::{self, Receiver, Sender};

/// Where an answer goes.
type To<T> = Sender<Result<T>>;

/// The waiting callers, by the task's number.
#[derive(Default)]
pub(super) struct Callers {
    /// Waiters for its end.
    ends: HashMap<u64, Vec<To<TaskRecord>>>,
    /// Waiters for the journal to have it.
    acceptances: HashMap<u64, Vec<To<()>>>,
    /// Waiters for the journal to have no result of it any more.
    removals: HashMap<u64, Vec<Sender<()>>>,
}

impl Callers {
    pub(super) fn await_end(&mut self, seq: u64) -> Receiver<Result<TaskRecord>> {
        add(&mut self.ends, seq)
    }

    pub(super) fn await_acceptance(&mut self, seq: u64) -> Receiver<Result<()>> {
        add(&mut self.acceptances, seq)
    }

    pub(super) fn await_removal(&mut self, seq: u64) -> Receiver<()> {
        add(&mut self.removals, seq)
    }

    /// A task has ended; returns whether any waiter got its record.
    pub(super) fn end(&mut self, seq: u64, record: impl FnOnce() -> Option<TaskRecord>) -> bool {
        let Some(mut waiters) = self.ends.remove(&seq) else { return false };
        let Some(record) = record() else { return false };
        // Most tasks have one waiter, which needs no copy.
        let last = waiters.pop();
        let mut given = false;
        for waiter in waiters {
            // A caller that no longer waits is no error.
            given |= waiter.send(Ok(record.clone())).is_ok();
        }
        last.is_some_and(|waiter| waiter.send(Ok(record)).is_ok()) || given
    }

    /// The journal has a task.
    pub(super) fn accept(&mut self, seq: u64) {
        for acceptor in self.acceptances.remove(&seq).unwrap_or_default() {
            let _ = acceptor.send(Ok(()));
        }
    }

    /// The journal could not take a task.
    pub(super) fn reject(&mut self, seq: u64, reason: &str) {
        if planted_here!(ForgetRejected) {
            return;
        }
        let error = || Error::NotSaved { reason: reason.to_owned() };
        for acceptor in self.acceptances.remove(&seq).unwrap_or_default() {
            let _ = acceptor.send(Err(error()));
        }
        for waiter in self.ends.remove(&seq).unwrap_or_default() {
            let _ = waiter.send(Err(error()));
        }
    }

    /// A task belongs to another coordinator now: waiters must ask there.
    pub(super) fn hand_over(&mut self, seq: u64) {
        for waiter in self.ends.remove(&seq).unwrap_or_default() {
            let _ = waiter.send(Err(Error::HandedOver));
        }
        for acceptor in self.acceptances.remove(&seq).unwrap_or_default() {
            let _ = acceptor.send(Err(Error::HandedOver));
        }
        self.removals.remove(&seq);
    }

    /// The journal has no result of a task any more.
    pub(super) fn remove(&mut self, seq: u64) {
        for waiter in self.removals.remove(&seq).unwrap_or_default() {
            let _ = waiter.send(());
        }
    }

    /// The journal will remove nothing more.
    pub(super) fn drop_removals(&mut self) {
        self.removals.clear();
    }

    /// Drops waiters of a task that went away.
    pub(super) fn drop_gone(&mut self, seq: u64) {
        drop_closed(&mut self.ends, seq);
        drop_closed(&mut self.acceptances, seq);
    }

    /// How many callers wait for an end or an acceptance.
    #[cfg(any(test, feature = "planted"))]
    pub(super) fn waiting(&self) -> usize {
        let ends = self.ends.values().map(Vec::len).sum::<usize>();
        ends + self.acceptances.values().map(Vec::len).sum::<usize>()
    }

    /// For how many tasks callers wait until the results are gone.
    #[cfg(feature = "planted")]
    pub(super) fn removals(&self) -> usize {
        self.removals.len()
    }
}

fn add<T>(waiters: &mut HashMap<u64, Vec<Sender<T>>>, seq: u64) -> Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    waiters.entry(seq).or_default().push(sender);
    receiver
}

fn drop_closed<T>(waiters: &mut HashMap<u64, Vec<Sender<T>>>, seq: u64) {
    if let Entry::Occupied(mut of_task) = waiters.entry(seq) {
        of_task.get_mut().retain(|waiter| !waiter.is_closed());
        if of_task.get().is_empty() {
            of_task.remove();
        }
    }
}
