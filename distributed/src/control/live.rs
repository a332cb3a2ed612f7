//! A database that is open on a journal's file, after the whole file was verified.

use super::guard::Guard;
use super::log::Each;
use super::migrate::Format;
use super::record::Key;
use super::store::{Handle, Store};
use super::tables::{self, Totals};
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};
use std::path::Path;
use std::sync::Arc;

/// redb's cache, in bytes.
pub(super) const CACHE_BYTES: usize = 2 << 20;

/// An open database on the file.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) database: Database,
    pub(super) store: Arc<Store>,
}

/// A verified file, to which nothing was written yet.
pub(super) struct Verified {
    pub(super) live: Live,
    pub(super) totals: Totals,
    pub(super) guard: Guard,
}

/// Collects the records and the epochs of a journal that is being opened.
pub(super) struct Reader<'a, 'b> {
    pub(super) each: &'a mut Each<'b>,
    pub(super) epochs: Vec<u64>,
}

impl Reader<'_, '_> {
    fn take(&mut self, (epoch, seq): Key, value: &[u8]) -> Result<(), Trouble> {
        if seq == tables::MARKER {
            if !value.is_empty() {
                let what =
                    format!("the record of epoch {epoch} has {} bytes, expected none", value.len());
                return Err(Trouble::Damaged(what));
            }
            self.epochs.push(epoch);
            return Ok(());
        }
        (self.each)((epoch, seq), value).map_err(Trouble::Damaged)
    }
}

impl Live {
    /// Commits one durable transaction, with the next number.
    pub(super) fn commit(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<Totals, Trouble>,
    ) -> Result<Totals, Trouble> {
        contained(|| {
            let txn = self.database.begin_write()?;
            let changed = change(&txn)?;
            let totals = Totals { commits: changed.commits.saturating_add(1), ..changed };
            tables::set_totals(&txn, totals)?;
            txn.commit()?;
            Ok(totals)
        })
    }

    /// Hands on every record.
    pub(super) fn read(&self, format: Format, to: &mut Reader<'_, '_>) -> Result<(), Trouble> {
        let txn = self.database.begin_read()?;
        tables::read(&txn, format.version, |_, key, value| to.take(key, value)).map(drop)
    }

    /// Drops the database without writing to the file again.
    pub(super) fn abandon(self) {
        self.store.kill();
        let _ = contained(|| {
            drop(self.database);
            Ok(())
        });
    }
}

/// Reads and verifies the whole file without writing to it. Hands on every record if the records
/// are in `format` already; otherwise they are read after the upgrade.
pub(super) fn verify(
    path: &Path,
    file: &Arc<dyn StorageBackend>,
    format: Format,
    mut to: Option<&mut Reader<'_, '_>>,
) -> Result<Verified, JournalError> {
    let supported = format.version;
    let refuse = |trouble: Trouble| trouble.on_open(path, None);
    let damaged = |what: &str| refuse(Trouble::Damaged(what.into()));
    let mark = Guard::read(&**file).map_err(|error| refuse(error.into()))?;
    let (guard, mark) = mark.ok_or_else(|| damaged("no page of its guard verifies"))?;
    if mark.version > supported {
        return Err(refuse(Trouble::TooNew { found: mark.version, supported }));
    }
    let store = Store::held(Arc::clone(file)).map_err(|error| refuse(error.into()))?;
    let checked = contained(|| {
        let database = redb::Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(Handle(Arc::clone(&store)))?;
        let totals =
            tables::read(&database.begin_read()?, supported, |version, key, value| {
                match to.as_mut().filter(|_| version == supported) {
                    Some(to) => to.take(key, value),
                    None => Ok(()),
                }
            })?;
        Ok((database, totals))
    });
    let (database, totals) = checked.map_err(|trouble| trouble.on_open(path, Some(&store)))?;
    let live = Live { database, store };
    // One commit may be durable but not acknowledged, and one page of the guard may be damaged.
    let possible = mark.commits..=mark.commits.saturating_add(2);
    if !possible.contains(&totals.commits) {
        live.abandon();
        let what = format!("it holds commit {}, expected {}", totals.commits, mark.commits);
        return Err(damaged(&what));
    }
    Ok(Verified { live, totals, guard })
}
