//! What coordinators of one cluster share beside the log, whatever keeps it: who leads, and documents
//! such as tokens and revocations that only the one who leads writes. The laws that every authority
//! obeys are those that `conformance` checks.

#[cfg(test)]
pub(crate) mod conformance;
mod folder;
mod memory;

pub(crate) use folder::{Folder, LEAD_FILE};
pub(crate) use memory::InMemory;

use crate::config::unix_ms;
use crate::error::Result;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps what the coordinators of a cluster share. Every call waits for the disk, or whatever else
/// keeps it.
pub(crate) trait Authority: fmt::Debug + Send + Sync {
    /// Takes the lead, or takes it anew: answers an epoch that is greater than any before it, and no
    /// smaller than `now_ms`, the milliseconds since 1970. Whoever wrote in an earlier epoch is refused
    /// from now on. The lead lasts until [`Authority::resign`], or until this is dropped.
    ///
    /// # Errors
    /// [`Error::Led`](crate::Error::Led) while another has the lead; [`Error::File`](crate::Error::File),
    /// [`Error::Damaged`](crate::Error::Damaged).
    fn lead(&self, now_ms: u64) -> Result<u64>;

    /// Gives up the lead that was taken with an epoch, if it still holds.
    fn resign(&self, epoch: u64);

    /// A document as it was written last, if it ever was.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn read(&self, document: &str) -> Result<Option<Vec<u8>>>;

    /// Replaces a document, or leaves it as it is.
    ///
    /// # Errors
    /// [`Error::Deposed`](crate::Error::Deposed) unless `epoch` is that of the lead which this holds;
    /// [`Error::File`](crate::Error::File).
    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()>;

    /// Where a document is, for people.
    fn locate(&self, document: &str) -> PathBuf;
}

/// An authority, and the epoch in which this process leads.
#[derive(Debug)]
pub(crate) struct Lead {
    authority: Box<dyn Authority>,
    epoch: Mutex<Option<u64>>,
}

impl Lead {
    pub(crate) fn new(authority: Box<dyn Authority>) -> Self {
        Self { authority, epoch: Mutex::new(None) }
    }

    pub(crate) fn authority(&self) -> &dyn Authority {
        &*self.authority
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        // It is replaced as a whole.
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lead, see [`Authority::lead`].
    pub(crate) fn take(self: &Arc<Self>, now_ms: u64) -> Result<Leading> {
        let mut epoch = self.lock();
        let taken = self.authority.lead(now_ms)?;
        *epoch = Some(taken);
        Ok(Leading { lead: Arc::clone(self), epoch: taken })
    }

    /// Replaces a document; where this process does not lead, it does for as long as that takes.
    ///
    /// # Errors
    /// Those of [`Authority::write`] and [`Authority::lead`].
    pub(crate) fn write(&self, document: &str, bytes: &[u8]) -> Result<()> {
        let epoch = self.lock();
        if let Some(epoch) = *epoch {
            return self.authority.write(epoch, document, bytes);
        }
        let taken = self.authority.lead(unix_ms())?;
        let written = self.authority.write(taken, document, bytes);
        self.authority.resign(taken);
        written
    }
}

/// The lead as it was taken once. It is given up with this, unless it was taken anew since.
#[derive(Debug)]
pub(crate) struct Leading {
    lead: Arc<Lead>,
    epoch: u64,
}

impl Leading {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Gives the lead up.
    pub(crate) fn resign(&self) {
        let mut epoch = self.lead.lock();
        if *epoch == Some(self.epoch) {
            *epoch = None;
            self.lead.authority.resign(self.epoch);
        }
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.resign();
    }
}
