//! The document that says of a cluster's log and authority that they are not whole, or are somewhere else
//! by now: no coordinator begins on either.

use crate::control::authority::Authority;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where it is, among the documents of the authority.
pub(crate) const MARKER: &str = "migration.json";
const REMEDY: &str = "restore it from a backup, or delete it if you know that all else is whole";

/// What a migration took along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrated {
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
    /// Durable tasks, those that have ended too.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What only who leads writes, such as tokens, keys and revocations.
    pub documents: u64,
    /// SHA-256 over all of these, in hex.
    pub digest: String,
}

/// What the document says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Marker {
    /// A copy that is not complete. Nobody led in the epochs `passing` but who copied.
    Incomplete { from: String, passing: Vec<u64> },
    /// Everything is there.
    Whole(Migrated),
    /// The cluster is kept elsewhere now.
    Moved { to: String },
    /// It was to be elsewhere, and somebody decided otherwise.
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

    /// Writes it as who leads in an epoch.
    pub(crate) fn write(&self, authority: &dyn Authority, epoch: u64) -> Result<()> {
        authority.write(epoch, MARKER, &self.encode())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // It has nothing that JSON cannot hold.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

/// Refuses an authority that no coordinator may begin on.
///
/// # Errors
/// [`Error::Incomplete`], [`Error::Moved`]; those of [`Authority::read`].
pub(crate) fn refuse(authority: &dyn Authority) -> Result<()> {
    match Marker::read(authority)? {
        Some(marker) => marker.check(authority.locate(MARKER)),
        None => Ok(()),
    }
}
