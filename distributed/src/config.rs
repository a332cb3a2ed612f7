//! Settings of a coordinator and of a worker, with their defaults.

use crate::net::pki::Identity;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoordinatorConfig {
    /// Address for workers, UDP; port 0 picks a free one.
    pub quic_addr: SocketAddr,
    /// Balancing strategy, one of [`balancing_strategies`](crate::balancing_strategies).
    pub balancing: String,
    /// Tasks that may wait; more are refused with [`Error::Overloaded`](crate::Error).
    pub queue_tasks_max: usize,
    /// Bytes of inputs that waiting tasks may hold.
    pub queue_bytes_max: usize,
    /// Finished tasks whose records are kept.
    pub retained_tasks_max: usize,
    /// Bytes of outputs that kept records may hold; the oldest go first.
    pub retained_bytes_max: usize,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            quic_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)),
            balancing: "least_loaded".into(),
            queue_tasks_max: 10_000,
            queue_bytes_max: 256 << 20,
            retained_tasks_max: 4_096,
            retained_bytes_max: 64 << 20,
        }
    }
}

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The coordinator's address for workers.
    pub coordinator: SocketAddr,
    /// Name, certificate and key, and the cluster's certificate authority.
    pub identity: Identity,
    /// Tasks that run at the same time, each on its own blocking thread; at least 1.
    pub slots: u32,
    /// First wait before a lost connection is made anew; doubles up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest wait between two connection attempts.
    pub reconnect_max: Duration,
    /// The folder in which a renewed identity is kept; `None` keeps it in memory only.
    pub keep_in: Option<PathBuf>,
}

impl WorkerConfig {
    /// Settings with the default waits between connection attempts.
    #[must_use]
    pub fn new(coordinator: SocketAddr, identity: Identity, slots: u32) -> Self {
        Self {
            coordinator,
            identity,
            slots: slots.max(1),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(2),
            keep_in: None,
        }
    }
}
