//! Who may do what: API keys, the routes that each role may use, and the log of what administrators
//! did.
//!
//! | caller | may |
//! |---|---|
//! | anybody who reaches the port | ask whether the server lives and is ready, read the API's description |
//! | a program of this machine without a key, a key with the role `infer` | health, metadata, inference |
//! | `submit` | besides: tasks, and looking at workers, models and totals |
//! | `admin`, and the key in `local.key` | everything |

mod audit;
mod caller;
mod keys;
mod layer;
mod limits;
mod local;
mod rights;

pub(crate) use keys::now_s;
pub use keys::{KeyInfo, KeyRole, Keys, NewKey};
pub use local::LocalKey;

pub(crate) use caller::{Caller, NO_KEY};
pub(crate) use layer::{Gate, authenticate, key_is_gone};
pub(crate) use limits::Limits;
pub(crate) use rights::{Right, Rights};

use crate::error::Result;
use audit::Audit;
use lgp_sdk::Pki;
use std::path::Path;

/// The keys of a cluster and what is kept about their use.
#[derive(Debug)]
pub struct Access {
    keys: Keys,
    local: Option<LocalKey>,
    audit: Option<Audit>,
    limits: Limits,
}

impl Access {
    /// The keys that an authority has, and none besides.
    ///
    /// # Errors
    /// [`Error::Cluster`](crate::Error::Cluster) where they cannot be read.
    pub fn open(pki: &Pki) -> Result<Self> {
        Ok(Self { keys: Keys::open(pki)?, local: None, audit: None, limits: Limits::default() })
    }

    /// The same with the key of this machine's owner, which may do everything.
    #[must_use]
    pub fn with_local(self, key: LocalKey) -> Self {
        Self { local: Some(key), ..self }
    }

    /// The same with a file to which each administrative call adds a line.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) where it cannot be opened.
    pub fn with_audit(self, path: &Path) -> Result<Self> {
        Ok(Self { audit: Some(Audit::open(path)?), ..self })
    }

    /// Adds a line for a call that came by another protocol than HTTP: who called from where, what was
    /// done to what, and what became of it.
    pub(crate) fn record(
        &self,
        (key, peer): (&str, &str),
        (method, path): (&str, &str),
        status: u16,
    ) {
        if let Some(audit) = &self.audit {
            audit.add(audit::Call { key, peer, method, path, status });
        }
    }

    /// Whether anybody but this machine's owner has a key that is good now.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        let now_s = now_s();
        self.keys.list().iter().any(|key| !key.is_expired(now_s))
    }

    /// Whether a caller of this name may still come: its key is neither revoked nor expired.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let now_s = now_s();
        let is_good = |key: &KeyInfo| key.id == id && !key.is_expired(now_s);
        id == LocalKey::ID || self.keys.list().iter().any(is_good)
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What the limits of keys have left.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a key back.
    pub(crate) fn revoke(&self, id: &str) -> Result<()> {
        let revoked = self.keys.revoke(id);
        self.limits.forget(id);
        revoked
    }
}
