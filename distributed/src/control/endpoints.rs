//! The servers of an engine, and how they are spoken to.

use super::tls::Tls;
use std::fmt;

/// Where they answer, each `HOST:PORT`.
#[derive(Debug, Clone, Default)]
pub(super) struct Endpoints {
    pub(super) hosts: Vec<String>,
    /// Whom they are asked as, if they ask for that.
    pub(super) account: Option<Account>,
    /// Where connections are encrypted.
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
