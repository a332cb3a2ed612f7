//! A coordinator, as others know it.

use serde::Serialize;

/// A coordinator of a cluster, as another one knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its number: the epoch in the ids of its tasks.
    pub number: u64,
    /// Whether it leads.
    pub leads: bool,
    /// The address for workers and other coordinators.
    pub quic: String,
    /// The address for people and programs, if it has one.
    pub url: Option<String>,
}
