//! The certificate that a coordinator shows, and the certificates that a command trusts.

use crate::failure::{Failure, Result};
use crate::files;
use lgp_distributed::CaHash;
use lgp_sdk::cluster::Pki;
use lgp_server::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::tls::{Certificate as Certificates, RootCerts, TlsConfig};

/// How long a server may take to show its certificate.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest file of certificates that is read.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which certificate a coordinator shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Certificate {
    /// None: its addresses are on loopback.
    #[default]
    Off,
    /// A certificate by the cluster's own authority.
    SelfSigned,
    /// PEM files: the certificate with its chain, and its key.
    Files(PathBuf, PathBuf),
}

impl FromStr for Certificate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once(',')) {
            ("off", _) => Ok(Self::Off),
            ("self-signed", _) => Ok(Self::SelfSigned),
            (_, Some((cert, key))) if !cert.is_empty() && !key.is_empty() => {
                Ok(Self::Files(cert.into(), key.into()))
            }
            _ => Err(format!(
                "'{text}' is no certificate, expected off, self-signed or CERT.pem,KEY.pem"
            )),
        }
    }
}

impl TryFrom<String> for Certificate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::SelfSigned => f.write_str("self-signed"),
            Self::Files(cert, key) => write!(f, "{},{}", cert.display(), key.display()),
        }
    }
}

impl From<Certificate> for String {
    fn from(certificate: Certificate) -> Self {
        certificate.to_string()
    }
}

impl Certificate {
    /// The same with absolute paths.
    pub(crate) fn absolute(self) -> Result<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| Failure::file("resolve", path, &error))
        };
        Ok(match self {
            Self::Files(cert, key) => Self::Files(absolute(&cert)?, absolute(&key)?),
            other => other,
        })
    }

    /// The TLS settings of listeners.
    pub(crate) fn open(&self, pki: &Pki) -> Result<Option<Tls>> {
        Ok(match self {
            Self::Off => None,
            Self::SelfSigned => Some(Tls::self_signed(pki.clone())?),
            Self::Files(cert, key) => Some(Tls::files(cert.clone(), key.clone())?),
        })
    }

    /// The authority's fingerprint for clients, where it is the cluster's own.
    pub(crate) fn fingerprint(&self, pki: &Pki) -> Option<String> {
        (*self == Self::SelfSigned).then(|| pki.hash().to_string())
    }
}

/// The authorities that a command trusts.
#[derive(Debug, Clone, Default)]
pub(crate) enum Trust {
    /// The authorities that browsers trust.
    #[default]
    Public,
    /// The authorities in a PEM file.
    File(PathBuf),
    /// The cluster's authority with this fingerprint.
    Fingerprint(CaHash),
}

impl Trust {
    /// The TLS configuration for requests to `host`. For a fingerprint, the authority's certificate is fetched from the
    /// host.
    pub(crate) fn config(&self, host: &str, port: u16) -> Result<TlsConfig> {
        let roots = match self {
            Self::Public => return Ok(TlsConfig::default()),
            Self::File(path) => from_file(path)?,
            Self::Fingerprint(expected) => vec![shown(host, port, *expected)?],
        };
        Ok(TlsConfig::builder().root_certs(RootCerts::from(roots)).build())
    }
}

fn from_file(path: &Path) -> Result<Vec<Certificates<'static>>> {
    let text = files::read_for("read the certificates in", path, FILE_BYTES_MAX)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = parsed.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        let message = format!("{} holds no certificate, expected PEM", path.display());
        Failure::new("bad_certificate", message)
    })?;
    Ok(found.iter().map(|cert| Certificates::from_der(cert).to_owned()).collect())
}

/// The certificate with a fingerprint among those that a server shows. Alone it proves nothing: the server must still
/// show that this certificate signed its own.
fn shown(host: &str, port: u16, expected: CaHash) -> Result<Certificates<'static>> {
    let failed = |reason: String| {
        Failure::new("unreachable", format!("cannot reach https://{host}:{port}: {reason}"))
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let found = Arc::new(Look { expected, found: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Failure::internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&found) as _)
        .with_no_client_auth();
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(Failure::internal)?;
    let addresses = (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut last = failed("it has no address".to_owned());
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(mut stream) => {
                let timeouts = stream
                    .set_read_timeout(Some(PATIENCE))
                    .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                timeouts.map_err(|error| failed(error.to_string()))?;
                // The session ends when the verifier refuses the certificates, or with a network error.
                let ended = session.complete_io(&mut stream);
                let authority = found.found.lock().unwrap_or_else(PoisonError::into_inner).take();
                return match (authority, ended) {
                    (Some(Some(der)), _) => Ok(Certificates::from_der(&der).to_owned()),
                    (Some(None), _) => Err(unknown(host, expected)),
                    (None, Err(error)) => Err(failed(error.to_string())),
                    (None, Ok(_)) => Err(failed("it shows no certificate".to_owned())),
                };
            }
            Err(error) => last = failed(error.to_string()),
        }
    }
    Err(last)
}

fn unknown(host: &str, expected: CaHash) -> Failure {
    let message = format!("{host} was not certified by the authority {expected}");
    Failure::new("unknown_authority", message)
        .hint("compare it with the fingerprint that radeon-cluster start has printed there")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Looks for a certificate with a fingerprint, and accepts none.
#[derive(Debug)]
struct Look {
    expected: CaHash,
    /// The result, once the server has shown its certificates.
    found: Mutex<Option<Option<Vec<u8>>>>,
}

impl ServerCertVerifier for Look {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = others.iter().chain([cert]).find(|cert| CaHash::of(cert) == self.expected);
        let mut place = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(found.map(|cert| cert.to_vec()));
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_in_one_word() {
        for text in ["off", "self-signed", "/a/cert.pem,/a/key.pem"] {
            let certificate: Certificate = text.parse().expect(text);
            assert_eq!(certificate.to_string(), text);
        }
        for wrong in ["", "on", "cert.pem", ",key.pem", "cert.pem,"] {
            let error = wrong.parse::<Certificate>().expect_err(wrong);
            assert!(error.contains("expected off, self-signed"), "{error}");
        }
        let relative: Certificate = "c.pem,k.pem".parse().expect("files");
        let text = relative.absolute().expect("a folder").to_string();
        assert!(text.starts_with('/') && text.contains(",/"), "{text}");
    }
}
