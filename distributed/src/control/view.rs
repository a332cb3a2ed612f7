//! What an engine keeps of a cluster, for people.

use crate::net::coordinator::peers::Peer;

/// What an engine keeps of a cluster.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ControlView {
    /// The location, without secrets.
    pub place: String,
    /// Name and version of the engine, and guarantees that it lacks.
    pub engine: String,
    /// The fingerprint of the cluster's authority.
    pub cluster: Option<String>,
    /// The member coordinators, the leader first.
    pub coordinators: Vec<Peer>,
    /// Whether any process leads. A process that writes documents or migrates the cluster leads
    /// without being a member.
    pub is_led: bool,
    /// Durable tasks, including those that have ended.
    pub records: u64,
    /// Bytes of the tasks, where they are counted.
    pub bytes: Option<u64>,
    /// The names of the documents that only the leader writes.
    pub documents: Vec<String>,
    /// The number and the digest, in hex, of the last commit of the log.
    pub last_commit: Option<(u64, String)>,
    /// The reason why no coordinator starts here: it is an incomplete copy, or was moved.
    pub closed: Option<String>,
}
