//! Settings of a rank.

use crate::net::identity::pki::Identity;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of one rank of a [`Ring`](crate::Ring).
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// A worker's certificate and key, and the cluster's certificate authority.
    pub identity: Identity,
    /// The ring's name, 1 to 64 bytes. Rings of different names may exist at once.
    pub group: String,
    /// Which of the ranks this is, from 0.
    pub rank: u32,
    /// How many ranks there are, 1 to 256.
    pub size: u32,
    /// How the ranks find each other.
    pub peers: RingPeers,
    /// The UDP address to listen on; by default any port, or the rank's own address where
    /// addresses are given.
    pub listen: Option<SocketAddr>,
    /// How long to wait for the other ranks when the ring is made, and afterwards how long a call
    /// waits without anything coming from the neighbours. It must be longer than one rank computes
    /// while others wait for it.
    pub timeout: Duration,
}

/// How the ranks of a ring find each other.
#[derive(Debug, Clone)]
pub enum RingPeers {
    /// Through the coordinator at this address, which tells each rank where it saw the others.
    Coordinator(SocketAddr),
    /// At these addresses, by rank.
    Addresses(Vec<SocketAddr>),
}

impl RingConfig {
    /// Settings with a timeout of a minute.
    #[must_use]
    pub fn new(
        identity: Identity,
        group: impl Into<String>,
        (rank, size): (u32, u32),
        peers: RingPeers,
    ) -> Self {
        let timeout = Duration::from_secs(60);
        Self { identity, group: group.into(), rank, size, peers, listen: None, timeout }
    }
}
