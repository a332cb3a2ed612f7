//! The interface of a durable log, independent of its storage. `conformance` checks the laws that
//! every log obeys.

use super::record::{Key, Record};
use crate::error::JournalError;
use std::path::Path;
use std::sync::Arc;

/// One change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a record; an old record with the same key is replaced.
    Put(Record),
    /// Removes a record, if it exists.
    Remove {
        /// The coordinator's epoch when the task was accepted.
        epoch: u64,
        /// The task's number in that epoch, from 1.
        seq: u64,
    },
}

/// Receives each record of a log that is being opened, in the order of the keys. An error describes
/// a defect and refuses the log. The records count only once opening has succeeded.
pub type Each<'a> = dyn FnMut(Key, &[u8]) -> Result<(), String> + 'a;

/// Receives the outcomes of changes, in the order of their tickets.
pub type Told = Box<dyn FnMut(Outcome) + Send>;

/// Completes the files that belong to a copy, before the copy gets its name.
pub type Complete<'a> = Box<dyn FnOnce() -> Result<(), JournalError> + 'a>;

/// The coordinator that opens a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opener {
    /// Its lead. A shared log goes to the later lead; the earlier one then writes nothing more.
    pub lead: u64,
    /// The epoch for the ids of its tasks.
    pub epoch: u64,
}

impl From<u64> for Opener {
    /// An opener whose lead and epoch are the same number.
    fn from(number: u64) -> Self {
        Self { lead: number, epoch: number }
    }
}

/// The location of a log.
pub trait Place: Send + Sync {
    /// Opens the log, or creates an empty one. If a single coordinator owns the log, the epoch
    /// becomes greater than any before it.
    ///
    /// # Errors
    /// [`JournalError::InUse`] while another coordinator has it open, or if a later lead opened it;
    /// [`JournalError::Damaged`], also for defects that `each` reports; any other reason why the
    /// log cannot be used.
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError>;

    /// Called about once a second while another coordinator has the log open. A log that takes long
    /// to read may read ahead in the background now, so that it opens soon. Returns at once.
    fn follow(&self) {}
}

/// A log that is held but not written to yet.
pub struct Opened {
    /// This coordinator's unique epoch.
    pub epoch: u64,
    /// The leads and the epochs of all openers including this one, sorted, as far back as they were
    /// recorded.
    pub epochs: Vec<u64>,
    /// Starts accepting changes.
    pub start: Start,
}

/// Starts accepting changes.
pub(crate) type Start = Box<dyn FnOnce(Told) -> Result<Arc<dyn Log>, JournalError> + Send>;

/// A log that accepts changes. Dropping the last handle writes the waiting changes.
pub trait Log: Send + Sync {
    /// Submits changes that become durable all or none, without waiting for that. Tickets rise;
    /// outcomes refer to changes by their tickets.
    ///
    /// # Errors
    /// Nothing was accepted: [`JournalError::Ticket`], or the error that ended the log.
    fn submit(&self, ticket: u64, draft: Draft) -> Result<(), JournalError>;

    /// The bytes of a durable record. Waits for the disk, but for no commit.
    ///
    /// # Errors
    /// [`JournalError::Closed`], also until a log that a full disk closed is open again;
    /// [`JournalError::Damaged`], [`JournalError::Io`].
    fn read(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError>;

    /// Frees unused space and waits for that; returns whether there was any.
    ///
    /// # Errors
    /// [`JournalError::Busy`] while the log is copied, or the error that ended the log.
    fn compact(&self) -> Result<bool, JournalError>;

    /// Copies the present contents into a new file, while changes continue. The copy gets its name
    /// once it is complete and `complete` has succeeded.
    ///
    /// # Errors
    /// Those of `complete`; [`JournalError::Exists`] if the file exists; the disk's errors.
    fn back_up(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError>;

    /// Bytes that the log takes on the disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    fn size_bytes(&self) -> Result<u64, JournalError>;
}

/// The changes of one ticket, which the log's thread encodes: encoding large values takes long, and
/// the submitter may hold a lock.
pub struct Draft {
    /// The approximate size of the values.
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
    /// Bytes of the stored value.
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

/// The outcome of submitted changes.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Every change up to this ticket is durable, except those reported as failed.
    Durable(u64),
    /// These changes did not become durable. After [`JournalError::Full`] they are not in the log,
    /// and later ones may succeed. After [`JournalError::Broken`] the outcome is unknown, and all
    /// later ones fail.
    Failed {
        /// In order.
        tickets: Vec<u64>,
        /// Why.
        error: JournalError,
    },
}
