//! What a coordinator needs of a durable log, whatever keeps it. The laws that every log obeys are
//! those that `conformance` checks.

use super::record::{Key, Record};
use crate::error::JournalError;
use std::path::Path;
use std::sync::Arc;

/// One change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Keeps a record, in place of the one with the same key if there is one.
    Put(Record),
    /// Forgets a record, if it is there.
    Remove {
        /// The coordinator's epoch when the task was accepted.
        epoch: u64,
        /// The task's number in that epoch, from 1.
        seq: u64,
    },
}

/// Takes each record of a log that is being opened, in the order of their keys, or says what is
/// wrong with it, which refuses the log. What it took counts once opening has succeeded.
pub type Each<'a> = dyn FnMut(Key, &[u8]) -> Result<(), String> + 'a;

/// Is told what becomes of changes, in the order of their tickets.
pub type Told = Box<dyn FnMut(Outcome) + Send>;

/// Makes what belongs to a copy complete before the copy gets its name.
pub type Complete<'a> = Box<dyn FnOnce() -> Result<(), JournalError> + 'a>;

/// Who opens a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// Its lead: where coordinators share a log, a later one takes it over from an earlier one, which
    /// then writes nothing more.
    pub lead: u64,
    /// What its tasks' ids are to have as their epoch.
    pub epoch: u64,
}

impl From<u64> for Opener {
    /// One whose lead and whose epoch are the same number.
    fn from(number: u64) -> Self {
        Self { lead: number, epoch: number }
    }
}

/// Where a log is kept.
pub trait Place: Send + Sync {
    /// Opens the log, or makes an empty one. Where a coordinator has it for itself, the epoch becomes
    /// greater than any before it.
    ///
    /// # Errors
    /// [`JournalError::InUse`] while another has it open, or where one with a later lead had;
    /// [`JournalError::Damaged`], also for what `each` found wrong; what else keeps it from being used.
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError>;

    /// Called about once a second while another has it open: a log that takes long to read may do so
    /// now, aside, so that it opens soon. Returns at once.
    fn follow(&self) {}
}

/// A log that is held and not written to yet.
pub struct Opened {
    /// This coordinator's epoch, which no other had.
    pub epoch: u64,
    /// The leads and the epochs of all that opened it, this one too, by size, as far back as that was
    /// noted.
    pub epochs: Vec<u64>,
    /// Lets changes begin.
    pub start: Start,
}

/// Starts to take changes.
pub(crate) type Start = Box<dyn FnOnce(Told) -> Result<Arc<dyn Log>, JournalError> + Send>;

/// A log that takes changes. Dropping the last handle writes what waits.
pub trait Log: Send + Sync {
    /// Hands changes over, of which all become durable or none, without waiting for that. Tickets
    /// rise, and name them in what is told of them.
    ///
    /// # Errors
    /// Nothing was accepted: [`JournalError::Ticket`], and what ended the log.
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError>;

    /// The bytes of a record that is durable. Waits for the disk, but for no commit.
    ///
    /// # Errors
    /// [`JournalError::Closed`], also while it is not known whether a full disk lets it go on;
    /// [`JournalError::Damaged`], [`JournalError::Io`].
    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError>;

    /// Gives space back that nothing uses; answers whether there was any. Waits for that.
    ///
    /// # Errors
    /// [`JournalError::Busy`] while it is copied, and what ended the log.
    fn compact(&self) -> Result<bool, JournalError>;

    /// Copies what it holds at this moment into a new file, while changes go on. The copy gets its
    /// name once it is complete and `complete` has succeeded.
    ///
    /// # Errors
    /// Those of `complete`; [`JournalError::Exists`] for a file that is there, and what the disk
    /// said.
    fn back_up(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError>;

    /// Bytes that it takes on the disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    fn size_bytes(&self) -> Result<u64, JournalError>;
}

/// Changes of one ticket, which the log's thread makes of what it is given: writing down takes long
/// for large values, and whoever submits may hold a lock.
pub struct Draft {
    /// About how many bytes the values will have.
    pub(crate) bytes: usize,
    pub(crate) write: Box<dyn FnOnce() -> Result<Vec<Change>, JournalError> + Send>,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl From<Vec<Change>> for Draft {
    fn from(changes: Vec<Change>) -> Self {
        let bytes = changes.iter().map(Change::value_bytes).sum();
        Self { bytes, write: Box::new(move || Ok(changes)) }
    }
}

impl From<Change> for Draft {
    fn from(change: Change) -> Self {
        vec![change].into()
    }
}

impl Change {
    /// Bytes of the value that it keeps.
    pub(super) fn value_bytes(&self) -> usize {
        match self {
            Self::Put(record) => record.bytes.len(),
            Self::Remove { .. } => 0,
        }
    }

    pub(super) fn is_removal(&self) -> bool {
        matches!(self, Self::Remove { .. })
    }
}

/// What became of submitted changes.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Every change up to this ticket is durable, apart from those that were reported as failed.
    Durable(u64),
    /// These did not become durable. After [`JournalError::Full`] they are surely not there, and
    /// later ones may succeed; after [`JournalError::Broken`] that is in doubt, and none will.
    Failed {
        /// In order.
        tickets: Vec<u64>,
        /// Why.
        error: JournalError,
    },
}
