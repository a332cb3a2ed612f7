//! The authority in etcd, for coordinators on several machines.
//!
//! A coordinator has a lease, which a thread keeps alive. A key bound to that lease names the
//! leader. A document is written by a transaction that compares that key and the document's last
//! known revision, so a deposed leader changes nothing, however late its writes arrive. etcd does
//! not tell the time, so a wrong clock goes unnoticed; leases run by etcd's own clock.

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

/// How long a lease lasts without renewal, and so about how long a failover takes. It is the
/// shortest lease that etcd grants by default: one and a half election timeouts.
const LEASE: Duration = Duration::from_secs(2);
/// The version of the keys, noted in `format`.
const FORMAT: &str = "1";

/// The location of a cluster's keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    endpoints: Endpoints,
    prefix: String,
}

impl Keys {
    /// The keys of the cluster `name`, in the etcd at these endpoints.
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

    /// The name in errors, without user and password.
    fn label(&self) -> PathBuf {
        let hosts = self.endpoints.hosts.join(",");
        format!("etcd://{hosts}/{}", self.prefix.trim_end_matches('/')).into()
    }
}

/// A failure of etcd.
#[derive(Debug, Clone)]
enum Trouble {
    /// etcd did not answer, so the outcome of the request is unknown.
    Away(String),
    /// The lease has ended; the request had no effect.
    Ended,
    /// etcd refused the request, which had no effect.
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
