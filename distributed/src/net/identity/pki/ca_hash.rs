//! The hash by which a cluster is recognised.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of an authority's certificate, by which joiners recognise a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaHash([u8; 32]);

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

impl FromStr for CaHash {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).map(|()| Self(hash)).map_err(|_| Error::Parse {
            what: "hash of a certificate authority",
            given: text.chars().take(64).collect(),
            expected: "64 hexadecimal digits",
        })
    }
}
