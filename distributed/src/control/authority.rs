//! What coordinators of one cluster share beside the log, whatever keeps it: who leads, and documents
//! such as tokens and revocations that only the one who leads writes. The laws that every authority
//! obeys are those that `conformance` checks.

#[cfg(test)]
pub(crate) mod conformance;
mod folder;
mod memory;

pub(crate) use folder::Folder;
pub(crate) use memory::InMemory;

use super::moving::marker;
use crate::config::unix_ms;
use crate::error::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// Keeps what the coordinators of a cluster share. Every call waits for the disk, or whatever else
/// keeps it.
pub trait Authority: fmt::Debug + Send + Sync {
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

    /// Whether the lead that was taken with an epoch holds, as far as is known here without asking.
    fn holds(&self, epoch: u64) -> bool;

    /// Whether that lead holds at this moment, by this machine's clock: where it lasts for a time that is
    /// renewed, that time is not over. A process that stood still may go on taking it to hold, see
    /// [`Authority::holds`], while another leads; with this it notices.
    fn holds_now(&self, epoch: u64) -> bool {
        self.holds(epoch)
    }

    /// How several coordinators take part at once, where that can be.
    fn members(&self) -> Option<&dyn Members> {
        None
    }

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

    /// The names of all documents, in order, but for what it keeps there of its own.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn documents(&self) -> Result<Vec<String>>;

    /// Where a document is, for people.
    fn locate(&self, document: &str) -> PathBuf;
}

/// Where several coordinators take part at once: each knows of the others, and which of them leads.
pub trait Members: fmt::Debug + Send + Sync {
    /// Takes part until this is dropped, and shows the others `about`. Answers a number that no other
    /// has or had, no smaller than `now_ms`. Whoever takes part already gets a new number.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64>;

    /// Those that take part, the one that leads first. One that ended without a word is among them for
    /// as long as a lease.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn present(&self) -> Result<Vec<Present>>;

    /// Wakes when who leads, or a document, may have changed, where that is told: sooner than by looking,
    /// which finds what was missed.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// What keeps all this: a name and a version, for people. Known once it was reached.
    fn engine(&self) -> String;
}

/// A coordinator that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The number that it got.
    pub number: u64,
    pub leads: bool,
    pub about: Vec<u8>,
}

/// A document that is kept in memory, too.
pub(crate) trait Reread: Send + Sync {
    /// Takes it as the authority has it now.
    ///
    /// # Errors
    /// Those of [`Authority::read`]; [`Error::Damaged`](crate::Error::Damaged). It is then as before.
    fn reread(&self, lead: &Lead) -> Result<()>;
}

/// An authority, and the epoch in which this process leads.
pub(crate) struct Lead {
    authority: Box<dyn Authority>,
    epoch: Mutex<Option<u64>>,
    documents: Mutex<Vec<Weak<dyn Reread>>>,
    /// A coordinator of this process takes part: it leads by election alone.
    takes_part: AtomicBool,
    /// Why nothing can be written at present.
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

    /// How several coordinators take part, where that can be.
    pub(crate) fn members(&self) -> Option<&dyn Members> {
        self.authority.members()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        // It is replaced as a whole.
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a document is read again with the others.
    pub(crate) fn keep_fresh(&self, document: Weak<dyn Reread>) {
        self.documents().push(document);
    }

    fn documents(&self) -> MutexGuard<'_, Vec<Weak<dyn Reread>>> {
        // Every step leaves it whole.
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes documents as another coordinator wrote them.
    ///
    /// # Errors
    /// Those of the first that cannot be read; the others were.
    pub(crate) fn reread(&self) -> Result<()> {
        let mut documents = self.documents().clone();
        documents.retain(|document| document.strong_count() > 0);
        let mut all = Ok(());
        for document in documents.iter().filter_map(Weak::upgrade) {
            // One that fails keeps none of the others old.
            all = all.and(document.reread(self));
        }
        all
    }

    /// Leads, unless the cluster is not whole here, or kept elsewhere by now.
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

    /// Takes the lead, see [`Authority::lead`], and the documents as who led before left them.
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

    /// Whether the authority answers: nobody waits for one that does not.
    pub(crate) fn set_away(&self, why: Option<String>) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Replaces a document; where this process does not lead, it does for as long as that takes.
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

    /// Whether it still holds, as far as is known here.
    pub(crate) fn holds(&self) -> bool {
        self.lead.authority.holds(self.epoch)
    }

    /// Whether no other can have it at this moment, see [`Authority::holds_now`].
    pub(crate) fn holds_now(&self) -> bool {
        self.lead.authority.holds_now(self.epoch)
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
