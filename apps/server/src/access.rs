//! Access control: API keys, the routes of each role, and the log of administrators' calls.
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
mod sign_ins;

pub(crate) use keys::now_s;
pub use keys::{KeyInfo, KeyRole, Keys, NewKey};
pub use local::LocalKey;

pub(crate) use audit::Made;
pub(crate) use caller::{Caller, NO_KEY};
pub(crate) use layer::{Gate, authenticate, bearer, key_is_gone};
pub(crate) use limits::Limits;
pub(crate) use rights::{Right, Rights};
use sign_ins::SignIns;

use crate::error::Result;
use audit::Audit;
use lgp_sdk::cluster::Pki;
use std::path::Path;
use std::time::Duration;

/// How often the server checks that the key of an open connection is still valid.
const LOOK: Duration = Duration::from_secs(1);

/// The path at which keys are made and revoked over HTTP.
const KEYS: &str = "/api/v1/cluster/keys";

/// The keys of a cluster, and the state of their use.
#[derive(Debug)]
pub struct Access {
    keys: Keys,
    local: Option<LocalKey>,
    audit: Option<Audit>,
    limits: Limits,
    sign_ins: SignIns,
}

impl Access {
    /// The keys of an authority, without a local key or an audit log.
    ///
    /// # Errors
    /// :Cluster`](crate: [`Error::Cluster`](crate::Error::Cluster) if they cannot be read.
    pub fn open(pki: &Pki) -> Result<Self> {
        let (limits, sign_ins) = (Limits::default(), SignIns::default());
        Ok(Self { keys: Keys::open(pki)?, local: None, audit: None, limits, sign_ins })
    }

    /// Adds the key of this machine's owner, which may do everything.
    #[must_use]
    pub fn with_local(self, key: LocalKey) -> Self {
        Self { local: Some(key), ..self }
    }

    /// Adds a file to which each administrative call appends a line.
    ///
    /// # Errors
    /// :File`](crate: [`Error::File`](crate::Error::File) if the file cannot be opened.
    pub fn with_audit(self, path: &Path) -> Result<Self> {
        Ok(Self { audit: Some(Audit::open(path)?), ..self })
    }

    /// Adds an audit line for a call by a protocol other than HTTP: the caller and its address, the method and
    /// path, and the outcome.
    pub(crate) fn record(
        &self,
        (key, peer): (&str, &str),
        (method, path): (&str, &str),
        status: u16,
    ) {
        if let Some(audit) = &self.audit {
            audit.add(audit::Call { key, peer, method, path, status, made: None });
        }
    }

    /// Makes a key in the folder of a stopped coordinator, as its owner, with a line in the audit log.
    ///
    /// # Errors
    /// Those of [`Keys::create`].
    pub fn create_offline(&self, new: NewKey) -> Result<(KeyInfo, String)> {
        let (info, text) = self.keys.create(new)?;
        self.record_offline(("POST", KEYS), 201, Some(&Made::from(&info)));
        Ok((info, text))
    }

    /// Revokes a key in the folder of a stopped coordinator, with a line in the audit log.
    ///
    /// # Errors
    /// Those of [`Keys::revoke`].
    pub fn revoke_offline(&self, id: &str) -> Result<()> {
        self.keys.revoke(id)?;
        self.record_offline(("DELETE", &format!("{KEYS}/{id}")), 200, None);
        Ok(())
    }

    fn record_offline(&self, (method, path): (&str, &str), status: u16, made: Option<&Made>) {
        if let Some(audit) = &self.audit {
            let (key, peer) = (LocalKey::ID, "offline");
            audit.add(audit::Call { key, peer, method, path, status, made });
        }
    }

    /// Whether any key other than the local one is valid now.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        let now_s = now_s();
        self.keys.list().iter().any(|key| !key.is_expired(now_s))
    }

    /// Whether a caller with this id may still make requests: its key is neither revoked nor expired.
    pub(crate) fn knows(&self, id: &str) -> bool {
        id == LocalKey::ID || self.keys.knows(id)
    }

    /// Whether a caller that was admitted may still be served.
    pub(crate) fn is_good(&self, caller: &Caller) -> bool {
        caller.is_anonymous() || self.knows(caller.id())
    }

    /// Resolves soon after a caller's key is revoked or has expired.
    pub(crate) async fn gone(&self, caller: Option<&Caller>) {
        let Some(caller) = caller.filter(|caller| !caller.is_anonymous()) else {
            return std::future::pending().await;
        };
        while self.knows(caller.id()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The sign-ins of browsers.
    pub(crate) fn sign_ins(&self) -> &SignIns {
        &self.sign_ins
    }

    /// Ends the sign-in with this text, if there is one; returns whether there was.
    pub(crate) fn end(&self, text: &str) -> bool {
        self.sign_ins.end(text)
    }

    /// The caller whose valid key or sign-in this text is.
    fn find(&self, text: &str) -> Option<Caller> {
        if self.local.as_ref().is_some_and(|local| local.is(text)) {
            return Some(Caller::owner());
        }
        match self.sign_ins.find(text) {
            Some(id) if id == LocalKey::ID => Some(Caller::owner()),
            Some(id) => self.keys.named(&id).map(Caller::of),
            None => self.keys.find(text).map(Caller::of),
        }
    }

    /// The state of the keys' limits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Revokes a key.
    pub(crate) fn revoke(&self, id: &str) -> Result<()> {
        let revoked = self.keys.revoke(id);
        self.limits.forget(id);
        revoked
    }
}
