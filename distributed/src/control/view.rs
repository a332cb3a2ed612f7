//! What an engine keeps of a cluster, for people who look.

use crate::net::coordinator::peers::Peer;

/// What an engine keeps of a cluster.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ControlView {
    /// Where it is, without secrets.
    pub place: String,
    /// A name and a version of what keeps it, and what that does not promise.
    pub engine: String,
    /// The fingerprint of the cluster's authority.
    pub cluster: Option<String>,
    /// The coordinators that take part, the one that leads first.
    pub coordinators: Vec<Peer>,
    /// Whether anybody leads: while documents are written, and while it is moved, one does that takes no
    /// part.
    pub is_led: bool,
    /// Durable tasks, those that have ended too.
    pub records: u64,
    /// Bytes of them, where they are counted.
    pub bytes: Option<u64>,
    /// The names of what only who leads writes.
    pub documents: Vec<String>,
    /// The number and the digest, in hex, of the last commit of the log.
    pub last_commit: Option<(u64, String)>,
    /// That it is not complete, or was moved: why no coordinator begins on it.
    pub closed: Option<String>,
}
