//! The journal: opening it, verified or not at all, and appending to it.
//!
//! The order of an append is: redb's commit, made durable; the commit's number in the guard, made
//! durable; the answer. What was answered is therefore found again or its loss noticed.

use super::create;
use super::file;
use super::guard::{Guard, Mark};
use super::live::{Live, Verified, verify};
use super::migrate::{self, Format};
use super::record::{Record, VALUE_BYTES_MAX};
use super::store::Failure;
use super::tables::{self, Totals};
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::StorageBackend;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use super::tables::Change;

/// Durable records, in one file that no one else has open.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(super) shared: Arc<Shared>,
    format: Format,
    totals: Totals,
    guard: Guard,
    broken: Option<JournalError>,
}

/// What an opened journal held.
#[derive(Debug)]
pub(crate) struct Opened {
    /// To append to.
    pub(crate) journal: Journal,
    /// This coordinator's epoch, durably greater than any before it.
    pub(crate) epoch: u64,
    /// Every record, by epoch and number.
    pub(crate) records: Vec<Record>,
}

/// What a journal shares with those who copy it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageBackend>,
    live: Mutex<Option<Live>>,
}

impl Journal {
    /// Opens the journal at `path`, or makes an empty one. `now_ms`, the milliseconds since 1970,
    /// becomes the epoch unless the clock jumped back behind the last one.
    ///
    /// # Errors
    /// [`JournalError::InUse`], [`JournalError::TooNew`] and [`JournalError::Damaged`] leave the
    /// file as it is; [`JournalError::Upgrade`] leaves its contents. [`JournalError::Full`] and
    /// [`JournalError::Io`] say what the disk said.
    pub(crate) fn open(path: &Path, now_ms: u64, format: Format) -> Result<Opened, JournalError> {
        let file = match file::open(path)? {
            Some(file) => file,
            None => match create::create(path, Totals::new(format.version), None, || Ok(())) {
                // Another made it meanwhile.
                Err(JournalError::Exists { path }) => {
                    file::open(&path)?.ok_or(JournalError::InUse { path })?
                }
                made => made?,
            },
        };
        Self::start(path, file, now_ms, format)
    }

    /// Opens the journal in `file`, which is locked already.
    pub(super) fn start(
        path: &Path,
        file: Arc<dyn StorageBackend>,
        now_ms: u64,
        format: Format,
    ) -> Result<Opened, JournalError> {
        let Verified { live, totals, mut guard, records } = verify(path, &file, format, true)?;
        let begun = live.store.release().map_err(Trouble::from).and_then(|()| {
            let epoch = totals.epoch.saturating_add(1).max(now_ms);
            let first = Totals { epoch, ..totals };
            live.commit(|txn| migrate::upgrade(txn, &format, first))
        });
        let written = begun.and_then(|new| {
            let mark = Mark { version: new.version, commits: new.commits };
            guard.write(&*file, mark).map_err(Trouble::from).map(|()| new)
        });
        // The step of an upgrade may rewrite values.
        let upgraded = totals.version != format.version;
        let read = written.and_then(|new| match upgraded {
            true => Ok((new, live.records(format)?)),
            false => Ok((new, records)),
        });
        match read {
            Ok((totals, records)) => {
                let path = path.to_path_buf();
                let shared = Arc::new(Shared { path, file, live: Mutex::new(Some(live)) });
                let epoch = totals.epoch;
                let journal = Self { shared, format, totals, guard, broken: None };
                Ok(Opened { journal, epoch, records })
            }
            Err(trouble) => {
                let error = trouble.on_open(path, Some(&live.store));
                live.abandon();
                Err(error)
            }
        }
    }

    /// Makes `changes`, all or none, and answers once they are durable.
    ///
    /// # Errors
    /// - [`JournalError::Full`], [`JournalError::TooLarge`]: nothing of this was written, and later
    ///   appends may succeed.
    /// - [`JournalError::Broken`]: whether this was written shows when the journal is opened
    ///   again. Every later append answers the same.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), JournalError> {
        for change in changes {
            if let Change::Put(Record { bytes, .. }) = change
                && bytes.len() > VALUE_BYTES_MAX
            {
                let limit = VALUE_BYTES_MAX;
                return Err(JournalError::TooLarge { given: bytes.len(), limit });
            }
        }
        if changes.is_empty() {
            return self.broken.clone().map_or(Ok(()), Err);
        }
        self.change(|live, totals| live.commit(|txn| tables::apply(txn, totals, changes)))
            .map(|_| ())
    }

    /// Lets `action` change the database, and sees to what follows from how that ended. `action`
    /// answers the totals it left.
    pub(super) fn change(
        &mut self,
        action: impl FnOnce(&mut Live, Totals) -> Result<Totals, Trouble>,
    ) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let shared = Arc::clone(&self.shared);
        let mut slot = shared.lock();
        if slot.is_none() {
            self.reopen(&mut slot)?;
        }
        let Some(live) = slot.as_mut() else { return Err(self.break_down("it is closed")) };
        match contained(|| action(live, self.totals)) {
            Ok(totals) => self.acknowledge(totals).inspect_err(|_| abandon(&mut slot)),
            Err(trouble) => self.recover(trouble, &mut slot),
        }
    }

    /// Writes the number of a commit that is durable into the guard.
    fn acknowledge(&mut self, totals: Totals) -> Result<(), JournalError> {
        if totals == self.totals {
            return Ok(());
        }
        let mark = Mark { version: totals.version, commits: totals.commits };
        if let Err(error) = self.guard.write(&*self.shared.file, mark) {
            return Err(self.break_down(&error.to_string()));
        }
        self.totals = totals;
        Ok(())
    }

    /// redb does nothing more after a failed write. Where that was for want of room, the database
    /// is opened anew; then it is known whether the change is in it.
    fn recover(&mut self, trouble: Trouble, slot: &mut Option<Live>) -> Result<(), JournalError> {
        let failure = slot.as_ref().and_then(|live| live.store.failure());
        abandon(slot);
        let Some(full) = failure.filter(Failure::is_full) else {
            return Err(self.break_down(&trouble.to_string()));
        };
        let before = self.totals;
        match self.reopen(slot) {
            // redb tidies up after a commit, and it was that which found no room.
            Ok(()) | Err(JournalError::Full { .. }) if self.totals != before => Ok(()),
            Ok(()) => Err(self.full(full)),
            Err(error) => Err(error),
        }
    }

    /// Opens the database anew. It holds what was acknowledged, or one commit more, which is
    /// acknowledged then.
    fn reopen(&mut self, slot: &mut Option<Live>) -> Result<(), JournalError> {
        let shared = Arc::clone(&self.shared);
        let Verified { live, totals, .. } = verify(&shared.path, &shared.file, self.format, false)
            .map_err(|error| self.break_down(&error.to_string()))?;
        if totals != self.totals {
            if totals.commits != self.totals.commits.saturating_add(1) {
                live.abandon();
                return Err(self.break_down("it holds another commit than the last"));
            }
            let synced = shared.file.sync_data().map_err(|e| self.break_down(&e.to_string()));
            if let Err(error) = synced.and_then(|()| self.acknowledge(totals)) {
                live.abandon();
                return Err(error);
            }
        }
        let Err(error) = live.store.release() else {
            *slot = Some(live);
            return Ok(());
        };
        let failure = live.store.failure();
        live.abandon();
        match failure.filter(Failure::is_full) {
            // What is in the file is known, and the next change tries again.
            Some(full) => Err(self.full(full)),
            None => Err(self.break_down(&error.to_string())),
        }
    }

    fn full(&self, failure: Failure) -> JournalError {
        JournalError::Full { path: self.shared.path.clone(), source: failure.source }
    }

    fn break_down(&mut self, what: &str) -> JournalError {
        let error = JournalError::Broken { path: self.shared.path.clone(), what: what.into() };
        self.broken = Some(error.clone());
        error
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A sound database is closed, so that the next open need not repair it.
        if let Some(live) = self.shared.lock().take() {
            let _ = contained(|| Ok(live.database.close()?));
        }
        let _ = self.shared.file.close();
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn abandon(slot: &mut Option<Live>) {
    if let Some(live) = slot.take() {
        live.abandon();
    }
}
