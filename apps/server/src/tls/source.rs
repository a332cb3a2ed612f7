//! Sources of certificates.

use super::names;
use crate::error::{Error, Result};
use lgp_sdk::cluster::Pki;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most bytes that are read of a certificate or key file.
const BYTES_MAX: u64 = 1 << 20;
/// Lifetime of a certificate of the cluster's authority: some clients refuse more than 398 days.
const LIFE: Duration = Duration::from_secs(397 * 24 * 3600);
/// The certificate is reissued after this time.
const RENEWAL: Duration = Duration::from_secs(265 * 24 * 3600);

/// The source of a certificate.
pub(super) enum Source {
    Files { cert: PathBuf, key: PathBuf },
    Authority { pki: Pki },
}

/// Changes whenever the certificate must be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64);

impl Source {
    pub(super) fn files(cert: PathBuf, key: PathBuf) -> Self {
        Self::Files { cert, key }
    }

    pub(super) fn authority(pki: Pki) -> Self {
        Self::Authority { pki }
    }

    /// The current certificate.
    pub(super) fn read(&self) -> Result<CertifiedKey> {
        match self {
            Self::Files { cert, key } => {
                let places = format!("{} and {}", cert.display(), key.display());
                certified(&read(cert)?, &read(key)?, &places)
            }
            Self::Authority { pki } => {
                let made = pki.issue_server(&names::of_this_machine(), LIFE)?;
                let (chain, key) = (made.chain_pem.as_bytes(), made.key_pem.as_bytes());
                certified(chain, key, "the cluster's authority")
            }
        }
    }

    /// The source's present stamp.
    pub(super) fn stamp(&self) -> Stamp {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Files { cert, key } => {
                for path in [cert, key] {
                    let metadata = std::fs::metadata(path);
                    metadata.ok().map(|m| (m.modified().ok(), m.len())).hash(&mut hasher);
                }
            }
            Self::Authority { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (since.as_secs() / RENEWAL.as_secs()).hash(&mut hasher);
                names::of_this_machine().hash(&mut hasher);
            }
        }
        Stamp(hasher.finish())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|source| Error::File { what: "read", path: path.to_owned(), source })?;
    Ok(bytes)
}

fn certified(chain: &[u8], key: &[u8], place: &str) -> Result<CertifiedKey> {
    let refused = |reason: String| Error::Tls { reason: format!("{place}: {reason}") };
    let certs: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(format!("no certificate in PEM: {error}")))?;
    if certs.is_empty() {
        return Err(refused("no certificate in PEM".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| refused(format!("no private key in PEM: {error}")))?;
    let key = any_supported_type(&key).map_err(|error| refused(error.to_string()))?;
    let certified = CertifiedKey::new(certs, key);
    certified.keys_match().map_err(|error| refused(error.to_string()))?;
    Ok(certified)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { cert, .. } => write!(f, "{}", cert.display()),
            Self::Authority { .. } => f.write_str("the cluster's authority"),
        }
    }
}
