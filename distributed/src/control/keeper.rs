//! The storage that a [`Writer`](super::writer::Writer) writes to, and its concurrent readers.

use super::log::{Change, Complete};
use super::record::Key;
use crate::error::JournalError;
use std::path::Path;

/// Storage of records. It belongs to the writer's thread, which alone changes it.
pub(super) trait Keeper: Send + 'static {
    /// The type of concurrent readers.
    type Reader: Reader;

    /// The location of the records, for people.
    fn path(&self) -> &Path;

    fn reader(&self) -> Self::Reader;

    /// Makes changes durable, all or none.
    ///
    /// # Errors
    /// [`JournalError::Full`]: no change was made, and later ones may succeed.
    /// [`JournalError::Broken`]: the outcome is unknown, and later changes are refused.
    fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError>;

    /// Whether no reopening is due: the storage is open, or it failed for good.
    fn is_open(&self) -> bool {
        true
    }

    /// Reopens closed storage if possible.
    fn prepare(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// See [`Log::compact`](super::log::Log::compact).
    fn compact(&mut self) -> Result<bool, JournalError> {
        Ok(false)
    }
}

/// Reads records while others are written.
pub(super) trait Reader: Send + Sync + 'static {
    /// See [`Log::read`](super::log::Log::read).
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError>;

    /// See [`Log::back_up`](super::log::Log::back_up).
    fn backup(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError>;

    /// See [`Log::size_bytes`](super::log::Log::size_bytes).
    fn size_bytes(&self) -> Result<u64, JournalError>;
}
