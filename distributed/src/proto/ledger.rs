//! Changes under way to the journal, and the records of ended tasks that are kept.

mod retention;
mod spent;
mod stub;

pub(super) use retention::Due;
pub(super) use stub::{RECORD_BYTES, Stub};

use crate::task::TaskId;
use crate::worker_info::Hits;
use retention::Retention;
use spent::Spent;
use std::collections::{BTreeMap, VecDeque};

/// A change that waits for the journal.
#[derive(Debug)]
pub(super) enum Pending {
    /// The tasks of a submission, which are acknowledged together or forgotten.
    Accept(Vec<u64>),
    /// A task whose end is known.
    End(u64),
    /// A task whose result is gone.
    Strip(u64),
    /// A record that is not needed any more.
    Forget(TaskId),
}

/// Changes under way to the journal, by ticket, and the records that are kept.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tickets: u64,
    pending: BTreeMap<u64, Pending>,
    /// Changes that the journal could not take.
    again: VecDeque<Pending>,
    /// Changes that the journal has taken, and the commits that took them.
    changes: u64,
    commits: u64,
    retention: Retention,
    spent: Spent,
    /// Earlier coordinators of the journal, in order.
    epochs: Vec<u64>,
}

impl Ledger {
    /// Notes a change that is sent to the journal; returns its ticket.
    pub(super) fn send(&mut self, pending: Pending) -> u64 {
        self.tickets += 1;
        self.pending.insert(self.tickets, pending);
        self.tickets
    }

    /// The journal has every change up to a ticket, except those that it could not take. Returns
    /// these changes, in order.
    pub(super) fn taken(&mut self, upto: u64) -> impl Iterator<Item = Pending> + use<> {
        let later = self.pending.split_off(&(upto + 1));
        let taken = std::mem::replace(&mut self.pending, later);
        let count = u64::try_from(taken.len()).unwrap_or(u64::MAX);
        self.changes += count;
        self.commits += u64::from(count > 0);
        taken.into_values()
    }

    /// The journal could not take a change; returns that change.
    pub(super) fn refused(&mut self, ticket: u64) -> Option<Pending> {
        self.pending.remove(&ticket)
    }

    /// Notes a change that is to be sent again. True when it is the only one.
    pub(super) fn put_back(&mut self, pending: Pending) -> bool {
        self.again.push_back(pending);
        self.again.len() == 1
    }

    /// Takes the changes that are to be sent again.
    pub(super) fn take_again(&mut self) -> VecDeque<Pending> {
        std::mem::take(&mut self.again)
    }

    /// Another coordinator has the journal: no change waits for it here.
    pub(super) fn hand_over(&mut self) {
        self.pending.clear();
        self.again.clear();
    }

    /// Changes that went along with another one's commit, of all changes.
    pub(super) fn group_commit(&self) -> Hits {
        Hits { hits: self.changes.saturating_sub(self.commits), of: self.changes }
    }

    /// Earlier coordinators of the journal.
    pub(super) fn remember(&mut self, mut epochs: Vec<u64>) {
        epochs.sort_unstable();
        epochs.dedup();
        self.epochs = epochs;
    }

    /// Whether a coordinator of that epoch used the journal.
    pub(super) fn knows(&self, epoch: u64) -> bool {
        self.epochs.binary_search(&epoch).is_ok()
    }

    /// The records of ended tasks.
    pub(super) fn records(&self) -> &Retention {
        &self.retention
    }

    /// The requests of tasks that ended without success.
    pub(super) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// The same, to be changed.
    pub(super) fn spent_mut(&mut self) -> &mut Spent {
        &mut self.spent
    }

    /// The records of ended tasks, to be changed.
    pub(super) fn records_mut(&mut self) -> &mut Retention {
        &mut self.retention
    }
}
