//! The roles of members of a cluster, and the protocols that each may speak.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a certificate allows its holder to do. Stated as a DNS name in the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs tasks.
    Worker,
    /// Gives the cluster tasks.
    Client,
    /// Looks after the cluster, and may do what clients may.
    Admin,
}

/// The SAN of every coordinator's certificate.
pub(crate) const COORDINATOR_SAN: &str = "coordinator.legacy-gpu.internal";

impl Role {
    /// Every role.
    pub(crate) const ALL: [Self; 3] = [Self::Worker, Self::Client, Self::Admin];

    /// The SAN that states the role.
    pub(crate) fn san(self) -> &'static str {
        match self {
            Self::Worker => "worker.legacy-gpu.internal",
            Self::Client => "client.legacy-gpu.internal",
            Self::Admin => "admin.legacy-gpu.internal",
        }
    }

    /// The name as it is written in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }

    /// Whether a member of this role may do what needs another role.
    pub(crate) fn may(self, needed: Self) -> bool {
        self == needed || (self, needed) == (Self::Admin, Self::Client)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The protocol of a connection, agreed upon in its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Tasks and what belongs to them.
    Work,
    /// A token for a certificate.
    Join,
    /// Collectives: where ranks are, and their elements.
    Ring,
    /// What clients and administrators ask for.
    Call,
    /// A new certificate for one that may have expired.
    Renew,
}

impl Protocol {
    const TABLE: [(&'static [u8], Self); 5] = [
        (b"legacy-gpu/1", Self::Work),
        (b"legacy-gpu-join/1", Self::Join),
        (b"legacy-gpu-ring/1", Self::Ring),
        (b"legacy-gpu-call/1", Self::Call),
        (b"legacy-gpu-renew/1", Self::Renew),
    ];

    /// Its name in the handshake (ALPN).
    pub(crate) fn alpn(self) -> Vec<u8> {
        // Each variant is in the table.
        Self::TABLE
            .iter()
            .find(|(_, p)| *p == self)
            .map_or_else(Vec::new, |(alpn, _)| alpn.to_vec())
    }

    /// The protocol that a handshake agreed upon.
    pub(crate) fn from_alpn(alpn: &[u8]) -> Option<Self> {
        Self::TABLE.iter().find(|(name, _)| *name == alpn).map(|(_, protocol)| *protocol)
    }

    /// All names, for a server.
    pub(crate) fn all() -> Vec<Vec<u8>> {
        Self::TABLE.iter().map(|(alpn, _)| alpn.to_vec()).collect()
    }

    /// Whether a peer whose certificate states a role may speak it; `None` is a peer without a
    /// certificate.
    pub(crate) fn is_open_to(self, role: Option<Role>) -> bool {
        match self {
            Self::Work | Self::Ring => role.is_some_and(|role| role.may(Role::Worker)),
            // Each call names the role that it needs besides.
            Self::Call => role.is_some_and(|role| role.may(Role::Client)),
            Self::Renew => role.is_some(),
            Self::Join => true,
        }
    }
}
