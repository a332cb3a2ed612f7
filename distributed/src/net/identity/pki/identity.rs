//! The identity that one party shows to the others, and keeps across restarts.

use super::pki_error;
use crate::control::files;
use crate::error::{Error, Result};
use crate::net::identity::pki::CaHash;
use crate::net::identity::role::Protocol;
use crate::net::identity::tls;
use crate::worker_info::WorkerId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const IDENTITY_FILE: &str = "identity.json";
const BYTES_MAX: u64 = 64 << 10;

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
    /// [`Error::Pki`] when the authority's certificate does not parse.
    pub fn ca_hash(&self) -> Result<CaHash> {
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(pki_error)?;
        Ok(CaHash::of(&ca))
    }

    /// When the certificate begins and ceases to be valid.
    ///
    /// # Errors
    /// [`Error::Pki`] when it does not parse.
    pub fn validity(&self) -> Result<(SystemTime, SystemTime)> {
        Self::validity_of(&self.cert_pem)
    }

    /// When the first certificate of a PEM text begins and ceases to be valid.
    ///
    /// # Errors
    /// [`Error::Pki`] when it does not parse.
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

    /// Saves the identity in a folder, in place of an earlier one. Only the owner can read it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn save(&self, folder: &Path) -> Result<()> {
        if let Err(error) = files::make_private_folder(folder)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(Error::file("make", folder, error));
        }
        let path = folder.join(IDENTITY_FILE);
        let text = serde_json::to_vec_pretty(self).map_err(pki_error)?;
        files::write_private(&path, &text).map_err(|error| Error::file("write", path, error))
    }

    /// The identity in a folder, if one was saved there.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it does not parse; [`Error::File`].
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(IDENTITY_FILE);
        let bytes = match files::read_bounded(&path, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path, error)),
        };
        files::keep_private(&path).map_err(|error| Error::file("read", &path, error))?;
        let damaged = |reason: String| Error::Damaged {
            path: path.clone(),
            reason,
            remedy: "delete it and join anew with a token".to_owned(),
        };
        let identity: Self = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        // Whether the parts work together shows here, not at the first connection.
        tls::client(&identity, Protocol::Work).map_err(|e| damaged(e.to_string()))?;
        identity.validity().map_err(|e| damaged(e.to_string()))?;
        Ok(Some(identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn an_identity_is_kept_in_private_and_refused_when_damaged() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().join("identity");
        assert!(Identity::load(&folder).expect("no error").is_none());
        let identity = Pki::generate().and_then(|pki| pki.issue_worker("w")).expect("sound");
        identity.save(&folder).expect("ours");
        let kept = Identity::load(&folder).expect("sound").expect("saved");
        assert_eq!((kept.name, kept.key_pem), (identity.name, identity.key_pem));
        let path = folder.join(IDENTITY_FILE);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        }
        let whole = std::fs::read(&path).expect("ours");
        for cut in (0..whole.len()).step_by(61) {
            std::fs::write(&path, &whole[..cut]).expect("ours");
            assert!(matches!(Identity::load(&folder), Err(Error::Damaged { .. })), "cut at {cut}");
        }
    }

    #[test]
    fn certificates_live_as_long_as_they_are_told_to() {
        let life = Duration::from_secs(3600);
        let pki = Pki::generate().expect("random numbers").with_certificate_life(life);
        let (from, to) = pki.issue_worker("w").and_then(|i| i.validity()).expect("sound");
        let given = to.duration_since(from).expect("in order");
        assert_eq!(given.as_secs(), (life + super::super::SKEW).as_secs());
    }
}
