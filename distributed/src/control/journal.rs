//! The journal: opens a file only after verifying it, and appends to it.
//!
//! An append runs in this order: redb's durable commit; the durable commit number in the guard; the
//! answer. An acknowledged record is therefore found again, or its loss is detected.

use super::create;
use super::file;
use super::guard::{Guard, Mark};
use super::live::{Live, Reader, Verified, verify};
use super::log::{Change, Each};
use super::migrate::{self, Format};
use super::record::VALUE_BYTES_MAX;
use super::store::Failure;
use super::tables::{self, Totals};
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::StorageBackend;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Durable records in one file that no other process has open.
#[derive(Debug)]
pub struct Journal {
    pub(super) shared: Arc<Shared>,
    format: Format,
    totals: Totals,
    guard: Guard,
    broken: Option<JournalError>,
}

/// A journal that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The journal, for appending.
    pub journal: Journal,
    /// This coordinator's epoch, durably greater than any before it.
    pub epoch: u64,
    /// The known epochs in order; this one is the last.
    pub epochs: Vec<u64>,
}

/// State that a journal shares with its readers and copiers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageBackend>,
    /// Readers and the appender hold it for reading, so neither waits for the other.
    live: RwLock<Option<Live>>,
}

impl Journal {
    /// Opens the journal at `path`, or creates an empty one, and hands its records to `each`. The
    /// epoch is `now_ms`, the milliseconds since 1970, unless the clock jumped back behind the last
    /// epoch.
    ///
    /// # Errors
    /// [`JournalError::InUse`], [`JournalError::TooNew`] and [`JournalError::Damaged`] leave the
    /// file unchanged; [`JournalError::Upgrade`] leaves its contents unchanged.
    /// [`JournalError::Full`] and [`JournalError::Io`] report the disk's error.
    pub(super) fn open(
        path: &Path,
        now_ms: u64,
        format: Format,
        each: &mut Each<'_>,
    ) -> Result<Opened, JournalError> {
        let file = match file::open(path)? {
            Some(file) => file,
            None => match create::create(path, Totals::new(format.version), None, || Ok(())) {
                // Another process created it meanwhile.
                Err(JournalError::Exists { path }) => {
                    file::open(&path)?.ok_or(JournalError::InUse { path })?
                }
                made => made?,
            },
        };
        Self::start(path, file, now_ms, format, each)
    }

    /// Opens the journal in `file`, which is already locked.
    pub(super) fn start(
        path: &Path,
        file: Arc<dyn StorageBackend>,
        now_ms: u64,
        format: Format,
        each: &mut Each<'_>,
    ) -> Result<Opened, JournalError> {
        let mut reader = Reader { each, epochs: Vec::new() };
        let verified = verify(path, &file, format, Some(&mut reader))?;
        let Verified { live, totals, mut guard } = verified;
        let begun = live.store.release().map_err(Trouble::from).and_then(|()| {
            let epoch = totals.epoch.saturating_add(1).max(now_ms);
            let first = Totals { epoch, ..totals };
            // The last epoch is marked too, because formats before the third had no markers.
            let epochs = [totals.epoch, epoch].into_iter().filter(|epoch| *epoch > 0);
            let markers: Vec<Change> = epochs.map(tables::marker).collect();
            live.commit(|txn| {
                let upgraded = migrate::upgrade(txn, &format, first)?;
                tables::apply(txn, upgraded, &markers)
            })
        });
        let written = begun.and_then(|new| {
            let mark = Mark { version: new.version, commits: new.commits };
            guard.write(&*file, mark).map_err(Trouble::from).map(|()| new)
        });
        // An upgrade step may rewrite values.
        let upgraded = totals.version != format.version;
        let read = written.and_then(|new| match upgraded {
            true => live.read(format, &mut reader).map(|()| new),
            false => Ok(new),
        });
        match read {
            Ok(new) => {
                let path = path.to_path_buf();
                let shared = Arc::new(Shared { path, file, live: RwLock::new(Some(live)) });
                let mut epochs = reader.epochs;
                epochs.extend([totals.epoch, new.epoch].into_iter().filter(|epoch| *epoch > 0));
                epochs.sort_unstable();
                epochs.dedup();
                let epoch = new.epoch;
                let journal = Self { shared, format, totals: new, guard, broken: None };
                Ok(Opened { journal, epoch, epochs })
            }
            Err(trouble) => {
                let error = trouble.on_open(path, Some(&live.store));
                live.abandon();
                Err(error)
            }
        }
    }

    /// Applies all of `changes` or none, and returns once they are durable.
    ///
    /// # Errors
    /// - [`JournalError::Full`], [`JournalError::TooLarge`]: no change was written, and later
    ///   appends may succeed.
    /// - [`JournalError::Broken`]: the outcome is unknown until the journal is opened again. Every
    ///   later append returns the same error.
    pub fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError> {
        for change in changes.clone() {
            let (given, limit) = (change.value_bytes(), VALUE_BYTES_MAX);
            if given > limit {
                return Err(JournalError::TooLarge { given, limit });
            }
        }
        if changes.clone().into_iter().next().is_none() {
            return self.broken.clone().map_or(Ok(()), Err);
        }
        self.prepare()?;
        let totals = self.totals;
        let committed = match self.shared.read().as_ref() {
            Some(live) => live.commit(|txn| tables::apply(txn, totals, changes)),
            None => Err(Trouble::Panic("it is closed".into())),
        };
        match committed {
            Ok(totals) => {
                let shared = Arc::clone(&self.shared);
                self.acknowledge(totals).inspect_err(|_| abandon(&mut shared.write()))
            }
            Err(trouble) => self.recover(trouble),
        }
    }

    /// Whether no reopening is due: the database is open, or the journal failed for good.
    pub(super) fn is_open(&self) -> bool {
        self.broken.is_some() || self.shared.read().is_some()
    }

    /// Reopens the database if it is closed, unless the journal failed for good.
    pub(super) fn prepare(&mut self) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let shared = Arc::clone(&self.shared);
        let closed = shared.read().is_none();
        if closed { self.reopen(&mut shared.write()) } else { Ok(()) }
    }

    /// Writes the number of a durable commit into the guard.
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

    /// redb does nothing more after a failed write. If the disk was full, this reopens the
    /// database, which shows whether the change is in it.
    pub(super) fn recover(&mut self, trouble: Trouble) -> Result<(), JournalError> {
        let shared = Arc::clone(&self.shared);
        let slot = &mut *shared.write();
        let failure = slot.as_ref().and_then(|live| live.store.failure());
        abandon(slot);
        let Some(full) = failure.filter(Failure::is_full) else {
            return Err(self.break_down(&trouble.to_string()));
        };
        let before = self.totals;
        match self.reopen(slot) {
            // Only redb's cleanup after the commit found no room.
            Ok(()) | Err(JournalError::Full { .. }) if self.totals != before => Ok(()),
            Ok(()) => Err(self.full(full)),
            Err(error) => Err(error),
        }
    }

    /// Reopens the database. It holds the acknowledged commits or one more, which is then
    /// acknowledged.
    fn reopen(&mut self, slot: &mut Option<Live>) -> Result<(), JournalError> {
        let shared = Arc::clone(&self.shared);
        let Verified { live, totals, .. } = verify(&shared.path, &shared.file, self.format, None)
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
            // The contents of the file are known, and the next change tries again.
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
        if let Some(live) = self.shared.write().take() {
            let _ = contained(|| Ok(live.database.close()?));
        }
        let _ = self.shared.file.close();
    }
}

impl Shared {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Option<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Option<Live>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn abandon(slot: &mut Option<Live>) {
    if let Some(live) = slot.take() {
        live.abandon();
    }
}
