//! A database that is open on a journal's file, after everything in the file was checked.

use super::guard::Guard;
use super::migrate::Format;
use super::record::Record;
use super::store::{Handle, Store};
use super::tables::{self, Totals};
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};
use std::path::Path;
use std::sync::Arc;

/// What redb may keep of the file in memory.
pub(super) const CACHE_BYTES: usize = 8 << 20;

/// An open database on the file.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) database: Database,
    pub(super) store: Arc<Store>,
}

/// A file whose contents are sound, and to which nothing was written yet.
pub(super) struct Verified {
    pub(super) live: Live,
    pub(super) totals: Totals,
    pub(super) guard: Guard,
    pub(super) records: Vec<Record>,
}

impl Live {
    /// One durable transaction, with the next number.
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

    pub(super) fn records(&self, format: Format) -> Result<Vec<Record>, Trouble> {
        let mut records = Vec::new();
        tables::read(&self.database.begin_read()?, format.version, |(epoch, seq), value| {
            records.push(Record { epoch, seq, bytes: value.to_vec() });
            Ok(())
        })?;
        Ok(records)
    }

    /// Drops the database without another write to the file.
    pub(super) fn abandon(self) {
        self.store.kill();
        let _ = contained(|| {
            drop(self.database);
            Ok(())
        });
    }
}

/// Reads and checks the whole file without writing to it.
pub(super) fn verify(
    path: &Path,
    file: &Arc<dyn StorageBackend>,
    format: Format,
    keep: bool,
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
        let mut records = Vec::new();
        let totals = tables::read(&database.begin_read()?, supported, |(epoch, seq), value| {
            if keep {
                records.push(Record { epoch, seq, bytes: value.to_vec() });
            }
            Ok(())
        })?;
        Ok((database, totals, records))
    });
    let (database, totals, records) =
        checked.map_err(|trouble| trouble.on_open(path, Some(&store)))?;
    let live = Live { database, store };
    // One commit may be durable and not yet acknowledged; one page of the guard may be damaged.
    let possible = mark.commits..=mark.commits.saturating_add(2);
    if !possible.contains(&totals.commits) {
        live.abandon();
        let what = format!("it holds commit {}, expected {}", totals.commits, mark.commits);
        return Err(damaged(&what));
    }
    Ok(Verified { live, totals, guard, records })
}
