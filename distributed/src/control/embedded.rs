//! The log of a single coordinator: a journal in one file, and the thread that writes it.

use super::journal::{self, Journal};
use super::keeper::{Keeper, Reader};
use super::log::{Change, Complete, Each, Opened, Opener, Place, Told};
use super::migrate::Format;
use super::record::Key;
use super::upkeep::Upkeep;
use super::writer::{BATCH_BYTES, Writer};
use crate::error::JournalError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "planted")]
use {super::create, super::tables::Totals, redb::StorageBackend};

/// A journal's file.
#[derive(Debug)]
pub struct Embedded(pub PathBuf);

impl Place for Embedded {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        Journal::open(&self.0, opener.epoch, Format::CURRENT, each)
            .map(|found| opened(found, BATCH_BYTES))
    }
}

/// Turns an opened journal into a log with commits of at most `batch_bytes` bytes.
pub(super) fn opened(found: journal::Opened, batch_bytes: usize) -> Opened {
    let journal::Opened { journal, epoch, epochs } = found;
    let start = move |told: Told| -> Result<Arc<dyn super::log::Log>, JournalError> {
        Ok(Arc::new(Writer::start(journal, batch_bytes, told)?))
    };
    Opened { epoch, epochs, start: Box::new(start) }
}

impl Keeper for Journal {
    type Reader = Upkeep;

    fn path(&self) -> &Path {
        &self.shared.path
    }

    fn reader(&self) -> Upkeep {
        self.upkeep()
    }

    fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError> {
        Self::append(self, changes)
    }

    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn prepare(&mut self) -> Result<(), JournalError> {
        Self::prepare(self)
    }

    fn compact(&mut self) -> Result<bool, JournalError> {
        Self::compact(self)
    }
}

impl Reader for Upkeep {
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        Self::get(self, key)
    }

    fn backup(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError> {
        Self::backup(self, to, complete)
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        Self::size_bytes(self)
    }
}

/// A journal in a simulated file.
#[cfg(feature = "planted")]
pub struct On(pub Arc<dyn StorageBackend>);

#[cfg(feature = "planted")]
impl Place for On {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        start(Path::new("simulated"), Arc::clone(&self.0), opener.epoch, each)
            .map(|found| opened(found, BATCH_BYTES))
    }
}

/// Creates an empty journal in an empty file.
#[cfg(feature = "planted")]
pub fn fill(path: &Path, file: &Arc<dyn StorageBackend>) -> Result<(), JournalError> {
    let filled = create::fill(file, Totals::new(Format::CURRENT.version), None);
    filled.map_err(|(trouble, store)| trouble.on_open(path, store.as_deref()))
}

/// Opens a journal in a simulated file; `path` appears in errors only.
#[cfg(feature = "planted")]
pub fn start(
    path: &Path,
    file: Arc<dyn StorageBackend>,
    now_ms: u64,
    each: &mut Each<'_>,
) -> Result<journal::Opened, JournalError> {
    Journal::start(path, file, now_ms, Format::CURRENT, each)
}
