//! What a [`Writer`](super::writer::Writer) writes to, and what others read from meanwhile.

use super::log::{Change, Complete};
use super::record::Key;
use crate::error::JournalError;
use std::path::Path;

/// Keeps records: what a writer's thread has for itself, which alone changes them.
pub(super) trait Keeper: Send + 'static {
    /// What others read with meanwhile.
    type Reader: Reader;

    /// Where they are, for people.
    fn path(&self) -> &Path;

    fn reader(&self) -> Self::Reader;

    /// Makes changes durable, all or none.
    ///
    /// # Errors
    /// [`JournalError::Full`]: they are surely not there, and later ones may succeed.
    /// [`JournalError::Broken`]: that is in doubt, and nothing more is taken.
    fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError>;

    /// Whether it can be read, or never will be again.
    fn is_open(&self) -> bool {
        true
    }

    /// Makes one that is not open so, if that can be.
    fn prepare(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// See [`Log::compact`](super::log::Log::compact).
    fn compact(&mut self) -> Result<bool, JournalError> {
        Ok(false)
    }
}

/// Reads what is kept, while it is written.
pub(super) trait Reader: Send + Sync + 'static {
    /// See [`Log::read`](super::log::Log::read).
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError>;

    /// See [`Log::back_up`](super::log::Log::back_up).
    fn backup(&self, to: &Path, complete: Complete<'_>) -> Result<(), JournalError>;

    /// See [`Log::size_bytes`](super::log::Log::size_bytes).
    fn size_bytes(&self) -> Result<u64, JournalError>;
}
