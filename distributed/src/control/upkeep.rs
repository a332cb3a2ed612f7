//! Compacts and copies a journal while it is in use.

use super::create;
use super::journal::{Journal, Shared};
use super::record::Key;
use super::tables;
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::{CompactionError, ReadableDatabase};
use std::path::Path;
use std::sync::Arc;

/// Copies and measures a journal from other threads than the appending one.
#[derive(Debug, Clone)]
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
}

impl Journal {
    /// A handle for other threads. It does not keep the journal open.
    pub(crate) fn upkeep(&self) -> Upkeep {
        Upkeep { shared: Arc::clone(&self.shared) }
    }

    /// Frees unused space; returns whether there was any. Takes about as long as writing the live
    /// data.
    ///
    /// # Errors
    /// [`JournalError::Busy`] while the journal is copied; otherwise as for [`Journal::append`].
    pub(crate) fn compact(&mut self) -> Result<bool, JournalError> {
        let (mut compacted, mut busy) = (false, false);
        self.prepare()?;
        let shared = Arc::clone(&self.shared);
        let done = match shared.write().as_mut() {
            Some(live) => contained(|| {
                match live.database.compact() {
                    Err(CompactionError::TransactionInProgress) => busy = true,
                    done => compacted = done?,
                }
                Ok(())
            }),
            None => Err(Trouble::Panic("it is closed".into())),
        };
        if let Err(trouble) = done {
            self.recover(trouble)?;
        }
        match busy {
            true => Err(JournalError::Busy { path: self.shared.path.clone() }),
            false => Ok(compacted),
        }
    }
}

impl Upkeep {
    /// Copies the present contents into a new journal at `to`, while appends continue. Opening the
    /// copy restores it. The copy gets its name once it is complete and `complete`, which copies
    /// the files that belong to it, has succeeded.
    ///
    /// # Errors
    /// Those of `complete`; [`JournalError::Exists`] when `to` exists, [`JournalError::Full`] and
    /// [`JournalError::Io`] about `to`, [`JournalError::Damaged`] when the journal fails
    /// verification, [`JournalError::Closed`].
    pub(crate) fn backup(
        &self,
        to: &Path,
        complete: impl FnOnce() -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let path = &self.shared.path;
        let (txn, store) = {
            let slot = self.shared.read();
            let live = slot.as_ref().ok_or_else(|| JournalError::Closed { path: path.clone() })?;
            let txn = contained(|| Ok(live.database.begin_read()?));
            (txn.map_err(|t| t.on_open(path, Some(&live.store)))?, Arc::clone(&live.store))
        };
        // The source is read twice, so that its damage is not mistaken for trouble with the copy.
        let checked: Result<_, Trouble> =
            contained(|| tables::read(&txn, u32::MAX, |_, _, _| Ok(())));
        let totals = checked.map_err(|trouble| trouble.on_open(path, Some(&store)))?;
        let file = create::create(to, totals, Some(&txn), complete)?;
        let source = |error| JournalError::Io { path: to.to_path_buf(), source: Arc::new(error) };
        file.close().map_err(source)
    }

    /// The value of a record.
    ///
    /// # Errors
    /// [`JournalError::Closed`], [`JournalError::Damaged`], [`JournalError::Io`].
    pub(crate) fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        let path = &self.shared.path;
        let slot = self.shared.read();
        let live = slot.as_ref().ok_or_else(|| JournalError::Closed { path: path.clone() })?;
        let found = contained(|| tables::get(&live.database.begin_read()?, key));
        found.map_err(|trouble| trouble.on_open(path, Some(&live.store)))
    }

    /// The file's size.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub(crate) fn size_bytes(&self) -> Result<u64, JournalError> {
        let path = &self.shared.path;
        let source = |error| JournalError::Io { path: path.clone(), source: Arc::new(error) };
        self.shared.file.len().map_err(source)
    }
}
