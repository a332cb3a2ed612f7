//! The addresses of an engine's servers, and how to connect to them.

use super::tls::Tls;
use std::fmt;

/// The servers, each as `HOST:PORT`.
#[derive(Debug, Clone, Default)]
pub(super) struct Endpoints {
    pub(super) hosts: Vec<String>,
    /// The account for servers that require a login.
    pub(super) account: Option<Account>,
    /// TLS settings for encrypted connections.
    pub(super) tls: Option<Tls>,
}

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account")
    }
}

#[cfg(test)]
impl From<Vec<String>> for Endpoints {
    fn from(hosts: Vec<String>) -> Self {
        Self { hosts, ..Self::default() }
    }
}
