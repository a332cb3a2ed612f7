//! The identity that one party shows to the others, and keeps across restarts.

mod stored;

use super::pki_error;
use crate::error::Result;
use crate::net::identity::pki::CaHash;
use crate::worker_info::WorkerId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Certificate and key of one party, and the authority that it trusts.
///
/// Whoever has it can act as that party: hand it over by a private channel, such as the stdin
/// of a child process.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The party's name, as the certificate states it.
    pub name: WorkerId,
    /// The cluster's certificate authority, PEM.
    pub ca_pem: String,
    /// The certificate, PEM.
    pub cert_pem: String,
    /// The private key, PEM (PKCS #8).
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not reach a log.
        f.debug_struct("Identity").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Identity {
    /// The hash by which the party's cluster is recognised.
    ///
    /// # Errors
    /// [`Error::Pki`](crate::Error::Pki) when the authority's certificate does not parse.
    pub fn ca_hash(&self) -> Result<CaHash> {
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(pki_error)?;
        Ok(CaHash::of(&ca))
    }

    /// When the certificate begins and ceases to be valid.
    ///
    /// # Errors
    /// [`Error::Pki`](crate::Error::Pki) when it does not parse.
    pub fn validity(&self) -> Result<(SystemTime, SystemTime)> {
        Self::validity_of(&self.cert_pem)
    }

    /// When the first certificate of a PEM text begins and ceases to be valid.
    ///
    /// # Errors
    /// [`Error::Pki`](crate::Error::Pki) when it does not parse.
    pub fn validity_of(cert_pem: &str) -> Result<(SystemTime, SystemTime)> {
        let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(pki_error)?;
        let (_, cert) = x509_parser::parse_x509_certificate(&cert).map_err(pki_error)?;
        let time = |seconds: i64| {
            // A time before 1970 counts as 1970, which is past, too.
            UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        };
        let validity = cert.validity();
        Ok((time(validity.not_before.timestamp()), time(validity.not_after.timestamp())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn certificates_live_as_long_as_they_are_told_to() {
        let life = Duration::from_secs(3600);
        let pki = Pki::generate().expect("random numbers").with_certificate_life(life);
        let (from, to) = pki.issue_worker("w").and_then(|i| i.validity()).expect("sound");
        let given = to.duration_since(from).expect("in order");
        assert_eq!(given.as_secs(), (life + super::super::SKEW).as_secs());
    }
}
