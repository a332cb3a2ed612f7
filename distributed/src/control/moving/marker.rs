//! The document that marks a cluster's log and authority as incomplete or as moved elsewhere. No
//! coordinator starts on either.

use crate::control::authority::Authority;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The document's name in the authority.
pub(crate) const MARKER: &str = "migration.json";
const REMEDY: &str = "restore it from a backup, or delete it if you know that all else is whole";

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrated {
    /// The source.
    pub from: String,
    /// The target.
    pub to: String,
    /// Durable tasks, including those that have ended.
    pub records: u64,
    /// Bytes of the tasks.
    pub bytes: u64,
    /// Documents that only the leader writes, such as tokens, keys and revocations.
    pub documents: u64,
    /// SHA-256 over all records and documents, in hex.
    pub digest: String,
}

/// The contents of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Marker {
    /// An incomplete copy. Only migrations led in the epochs `passing`.
    Incomplete { from: String, passing: Vec<u64> },
    /// The copy is complete.
    Whole(Migrated),
    /// The cluster was moved to `to`.
    Moved { to: String },
    /// The move to `to` was undone.
    Undone { to: String },
}

impl Marker {
    pub(crate) fn read(authority: &dyn Authority) -> Result<Option<Self>> {
        let Some(bytes) = authority.read(MARKER)? else { return Ok(None) };
        Self::decode(&bytes, || authority.locate(MARKER)).map(Some)
    }

    pub(crate) fn decode(bytes: &[u8], path: impl FnOnce() -> PathBuf) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::Damaged {
            path: path(),
            reason: error.to_string(),
            remedy: REMEDY.to_owned(),
        })
    }

    /// # Errors
    /// [`Error::Incomplete`], [`Error::Moved`].
    pub(crate) fn check(self, path: PathBuf) -> Result<()> {
        match self {
            Self::Whole(_) | Self::Undone { .. } => Ok(()),
            Self::Incomplete { from, .. } => Err(Error::Incomplete { path, from }),
            Self::Moved { to } => Err(Error::Moved { path, to }),
        }
    }

    /// Writes the marker as the leader of an epoch.
    pub(crate) fn write(&self, authority: &dyn Authority, epoch: u64) -> Result<()> {
        authority.write(epoch, MARKER, &self.encode())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // The marker has nothing that JSON cannot represent.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

/// Refuses an authority on which no coordinator may start.
///
/// # Errors
/// [`Error::Incomplete`], [`Error::Moved`]; those of [`Authority::read`].
pub(crate) fn refuse(authority: &dyn Authority) -> Result<()> {
    match Marker::read(authority)? {
        Some(marker) => marker.check(authority.locate(MARKER)),
        None => Ok(()),
    }
}
