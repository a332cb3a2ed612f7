//! State that the coordinators of a cluster share besides the log: who leads, and documents such as
//! tokens and revocations, which only the leader writes. `conformance` checks the laws that every
//! authority obeys.

#[cfg(test)]
pub(crate) mod conformance;
mod contract;
mod folder;
mod memory;

pub use contract::{Authority, Members, Present};
pub(crate) use folder::Folder;
pub(crate) use memory::InMemory;

use super::moving::marker;
use crate::clock::unix_ms;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A document that is also cached in memory.
pub(crate) trait Reread: Send + Sync {
    /// Reloads the document from the authority.
    ///
    /// # Errors
    /// Those of [`Authority::read`]; [`Error::Damaged`](crate::Error::Damaged). The cached document
    /// is then unchanged.
    fn reread(&self, lead: &Lead) -> Result<()>;
}

/// An authority, and the epoch in which this process leads.
pub(crate) struct Lead {
    authority: Box<dyn Authority>,
    epoch: Mutex<Option<u64>>,
    documents: Mutex<Vec<Weak<dyn Reread>>>,
    /// Whether a coordinator of this process is a member, which leads only by election.
    takes_part: AtomicBool,
    /// The reason why nothing can be written at present.
    away: Mutex<Option<String>>,
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Lead {
    pub(crate) fn new(authority: Box<dyn Authority>) -> Self {
        Self {
            authority,
            epoch: Mutex::new(None),
            documents: Mutex::default(),
            takes_part: AtomicBool::default(),
            away: Mutex::default(),
        }
    }

    pub(crate) fn authority(&self) -> &dyn Authority {
        &*self.authority
    }

    /// The membership interface, if several coordinators can share this authority.
    pub(crate) fn members(&self) -> Option<&dyn Members> {
        self.authority.members()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        // The value is only replaced as a whole.
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a document that [`Lead::reread`] reloads.
    pub(crate) fn keep_fresh(&self, document: Weak<dyn Reread>) {
        self.documents().push(document);
    }

    fn documents(&self) -> MutexGuard<'_, Vec<Weak<dyn Reread>>> {
        // Every step leaves the list consistent.
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the documents that another coordinator may have written.
    ///
    /// # Errors
    /// That of the first document that cannot be read; the others are still reloaded.
    pub(crate) fn reread(&self) -> Result<()> {
        let mut documents = self.documents().clone();
        documents.retain(|document| document.strong_count() > 0);
        let mut all = Ok(());
        for document in documents.iter().filter_map(Weak::upgrade) {
            // A failing document does not keep the others from being reloaded.
            all = all.and(document.reread(self));
        }
        all
    }

    /// Takes the lead, unless the cluster is incomplete here or was moved elsewhere.
    fn begin(&self, now_ms: u64) -> Result<u64> {
        let taken = self.authority.lead(now_ms)?;
        match marker::refuse(&*self.authority) {
            Ok(()) => Ok(taken),
            Err(error) => {
                self.authority.resign(taken);
                Err(error)
            }
        }
    }

    /// Takes the lead, see [`Authority::lead`], and reloads the documents that the previous leader
    /// wrote.
    ///
    /// # Errors
    /// Those of [`Authority::lead`]; [`Error::Incomplete`](crate::Error::Incomplete),
    /// [`Error::Moved`](crate::Error::Moved).
    pub(crate) fn take(self: &Arc<Self>, now_ms: u64) -> Result<Leading> {
        let mut epoch = self.lock();
        let taken = self.begin(now_ms)?;
        *epoch = Some(taken);
        drop(epoch);
        let leading = Leading { lead: Arc::clone(self), epoch: taken };
        self.reread()?;
        Ok(leading)
    }

    /// From now on documents are written only while this process leads.
    pub(crate) fn take_part(&self) {
        self.takes_part.store(true, Relaxed);
    }

    /// Notes whether the authority answers, so that writes fail at once while it does not.
    pub(crate) fn set_away(&self, why: Option<String>) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Replaces a document. If this process does not lead, it takes the lead for the duration of
    /// the write.
    ///
    /// # Errors
    /// Those of [`Authority::write`] and [`Lead::take`].
    pub(crate) fn write(&self, document: &str, bytes: &[u8]) -> Result<()> {
        if let Some(why) = self.away.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            let path = self.authority.locate(document);
            return Err(Error::file("write", path, std::io::Error::other(why)));
        }
        let epoch = self.lock();
        if let Some(epoch) = *epoch {
            return self.authority.write(epoch, document, bytes);
        }
        if self.takes_part.load(Relaxed) {
            return Err(Error::Led { path: self.authority.locate(document) });
        }
        let taken = self.begin(unix_ms())?;
        let written = self.authority.write(taken, document, bytes);
        self.authority.resign(taken);
        written
    }
}

/// A lead that was taken. Dropping this gives it up, unless the lead was taken anew since.
#[derive(Debug)]
pub(crate) struct Leading {
    lead: Arc<Lead>,
    epoch: u64,
}

impl Leading {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the lead still holds, as far as this process knows.
    pub(crate) fn holds(&self) -> bool {
        self.lead.authority.holds(self.epoch)
    }

    /// Whether no other coordinator can lead at this moment, see [`Authority::holds_now`].
    pub(crate) fn holds_now(&self) -> bool {
        self.lead.authority.holds_now(self.epoch)
    }

    /// Gives up the lead.
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
