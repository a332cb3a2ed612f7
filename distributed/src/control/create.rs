//! Creates journal files: empty ones and copies.

use super::file::Unnamed;
use super::guard::{Guard, HEAD_BYTES, Mark};
use super::live::CACHE_BYTES;
use super::log::Change;
use super::record::Record;
use super::store::{Handle, Store};
use super::tables::{self, Totals};
use super::trouble::{Trouble, contained};
use crate::error::JournalError;
use redb::{Database, ReadTransaction, StorageBackend};
use std::path::Path;
use std::sync::Arc;

/// Bytes of values that a copy collects before it writes them.
const CHUNK_BYTES: usize = 4 << 20;

/// Creates the journal `path` with `totals` and the records of `source`, and returns its locked
/// file. The file gets its name once it is complete and `complete` has succeeded.
///
/// # Errors
/// Those of `complete`; [`JournalError::Exists`], [`JournalError::InUse`], [`JournalError::Full`],
/// [`JournalError::Io`]; [`JournalError::Damaged`] when the source is damaged.
pub(super) fn create(
    path: &Path,
    totals: Totals,
    source: Option<&ReadTransaction>,
    complete: impl FnOnce() -> Result<(), JournalError>,
) -> Result<Arc<dyn StorageBackend>, JournalError> {
    let made = Unnamed::new(path)?;
    let filled = fill(&made.file, totals, source);
    let filled = filled.map_err(|(trouble, store)| trouble.on_open(path, store.as_deref()));
    match filled.and_then(|()| complete()) {
        Ok(()) => made.name(),
        Err(error) => {
            made.discard();
            Err(error)
        }
    }
}

/// Writes a whole journal into an empty `file`.
pub(super) fn fill(
    file: &Arc<dyn StorageBackend>,
    totals: Totals,
    source: Option<&ReadTransaction>,
) -> Result<(), (Trouble, Option<Arc<Store>>)> {
    let early = |error: std::io::Error| (Trouble::from(error), None);
    file.set_len(HEAD_BYTES).map_err(early)?;
    let store = Store::through(Arc::clone(file));
    let filled = contained(|| {
        let database = redb::Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(Handle(Arc::clone(&store)))?;
        copy(&database, totals, source)?;
        Ok(database.close()?)
    });
    filled.map_err(|trouble| (trouble, Some(Arc::clone(&store))))?;
    let mark = Mark { version: totals.version, commits: totals.commits };
    let mut guard = Guard::NEW;
    guard.write(&**file, mark).map_err(early)
}

fn copy(
    database: &Database,
    totals: Totals,
    source: Option<&ReadTransaction>,
) -> Result<(), Trouble> {
    let mut copied = Totals { records: 0, sum: 0, ..totals };
    let mut chunk = Vec::new();
    let mut chunk_bytes = 0;
    if let Some(source) = source {
        tables::read(source, totals.version, |_, (epoch, seq), value| {
            chunk.push(Change::Put(Record { epoch, seq, bytes: value.to_vec() }));
            chunk_bytes += value.len();
            if chunk_bytes >= CHUNK_BYTES {
                copied = write(database, copied, &chunk)?;
                chunk.clear();
                chunk_bytes = 0;
            }
            Ok(())
        })?;
    }
    let copied = write(database, copied, &chunk)?;
    if copied != totals {
        return Err(Trouble::Damaged("the copy differs from its source".into()));
    }
    Ok(())
}

fn write(database: &Database, totals: Totals, changes: &[Change]) -> Result<Totals, Trouble> {
    let txn = database.begin_write()?;
    let totals = tables::apply(&txn, totals, changes)?;
    tables::set_totals(&txn, totals)?;
    txn.commit()?;
    Ok(totals)
}
