//! The hash by which a cluster is recognised.

use sha2::{Digest, Sha256};
use std::fmt;

/// SHA-256 of an authority's certificate, by which joiners recognise a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaHash(pub(crate) [u8; 32]);

impl CaHash {
    /// The fingerprint of a certificate (DER): its SHA-256.
    #[must_use]
    pub fn of(ca: &[u8]) -> Self {
        Self(Sha256::digest(ca).into())
    }
}

impl fmt::Display for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
