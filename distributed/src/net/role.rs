//! What a party of the cluster may be, and which protocol each may speak.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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
pub(super) const COORDINATOR_SAN: &str = "coordinator.legacy-gpu.internal";

impl Role {
    /// Every role.
    pub(super) const ALL: [Self; 3] = [Self::Worker, Self::Client, Self::Admin];

    /// The SAN that states the role.
    pub(super) fn san(self) -> &'static str {
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

    /// Whether who has this role may do what needs another.
    pub(super) fn may(self, needed: Self) -> bool {
        self == needed || (self, needed) == (Self::Admin, Self::Client)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| Error::Parse {
            what: "role",
            given: text.chars().take(64).collect(),
            expected: "worker, client or admin",
        })
    }
}

/// What is spoken on a connection, agreed upon in its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Tasks and what belongs to them.
    Work,
    /// A token for a certificate.
    Join,
    /// Collectives: where ranks are, and their elements.
    Ring,
    /// What clients and administrators ask for.
    Call,
}

impl Protocol {
    const TABLE: [(&'static [u8], Self); 4] = [
        (b"legacy-gpu/1", Self::Work),
        (b"legacy-gpu-join/1", Self::Join),
        (b"legacy-gpu-ring/1", Self::Ring),
        (b"legacy-gpu-call/1", Self::Call),
    ];

    /// What the handshake calls it (ALPN).
    pub(super) fn alpn(self) -> Vec<u8> {
        // Each variant is in the table.
        Self::TABLE
            .iter()
            .find(|(_, p)| *p == self)
            .map_or_else(Vec::new, |(alpn, _)| alpn.to_vec())
    }

    /// The protocol that a handshake agreed upon.
    pub(super) fn from_alpn(alpn: &[u8]) -> Option<Self> {
        Self::TABLE.iter().find(|(name, _)| *name == alpn).map(|(_, protocol)| *protocol)
    }

    /// All names, for a server.
    pub(super) fn all() -> Vec<Vec<u8>> {
        Self::TABLE.iter().map(|(alpn, _)| alpn.to_vec()).collect()
    }

    /// The role that a peer's certificate must state; `None` where it needs no certificate.
    pub(super) fn required_role(self) -> Option<Role> {
        match self {
            Self::Work | Self::Ring => Some(Role::Worker),
            // What each call needs besides stands with the calls.
            Self::Call => Some(Role::Client),
            Self::Join => None,
        }
    }
}
