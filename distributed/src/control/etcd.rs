//! The authority in etcd, for coordinators on several machines.
//!
//! A coordinator has a lease, which a thread keeps alive; who leads is a key that goes with the lease.
//! A document is written by a transaction that asks for that key, and for the document as it was when it
//! was read here: who was deposed changes nothing, however late its writes come. etcd does not tell the
//! time, so a clock that is wrong is not noticed: leases go by etcd's own.

mod authority;
mod channels;
mod client;
mod heart;
mod look;
mod members;
mod pass;
mod proto;
#[cfg(test)]
pub(super) mod tests;

pub(crate) use authority::EtcdAuthority;
pub(crate) use look::look;

use super::endpoints::Endpoints;
use std::path::PathBuf;
use std::time::Duration;

/// How long a lease lasts that is not renewed, and so about how long it takes until another leads. It is
/// the shortest that etcd grants as it is set up by default: one and a half election timeouts.
const LEASE: Duration = Duration::from_secs(2);
/// The version of the keys, noted in `format`.
const FORMAT: &str = "1";

/// Where a cluster's keys are.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    endpoints: Endpoints,
    prefix: String,
}

impl Keys {
    /// Those of the cluster of this name, in the etcd that answers at these endpoints.
    pub(super) fn new(endpoints: Endpoints, name: &str) -> Self {
        Self { endpoints, prefix: format!("radeon-cluster/{name}/") }
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    fn document(&self, name: &str) -> Vec<u8> {
        self.key(&format!("document/{name}"))
    }

    fn member(&self, holder: &str) -> Vec<u8> {
        self.key(&format!("member/{holder}"))
    }

    /// What errors call them: no user, no password.
    fn label(&self) -> PathBuf {
        let hosts = self.endpoints.hosts.join(",");
        format!("etcd://{hosts}/{}", self.prefix.trim_end_matches('/')).into()
    }
}

/// What goes wrong with etcd.
#[derive(Debug, Clone)]
enum Trouble {
    /// It did not answer: whether it did what was asked is not known.
    Away(String),
    /// The lease has ended; it did nothing.
    Ended,
    /// It refused, and did nothing.
    Refused(String),
}

impl Trouble {
    fn text(self) -> String {
        match self {
            Self::Ended => "the lease has ended".to_owned(),
            Self::Away(text) | Self::Refused(text) => text,
        }
    }
}
