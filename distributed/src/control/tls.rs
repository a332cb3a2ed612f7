//! Encrypted connections to servers that prove their identity.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to do about a server that expects TLS.
pub(super) const ENCRYPTED: &str = "if it encrypts, add ?sslmode=verify-full, and &sslrootcert=FILE with \
                                    the authority of its certificate unless this system knows that";

/// The alerts of a server that wants a client certificate.
const ALERTS: [AlertDescription; 4] = [
    AlertDescription::UnknownCA,
    AlertDescription::CertificateUnknown,
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
];

/// How a connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Trusts the authorities in a PEM file, or those of the system, and shows a client certificate
    /// if there is one.
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub(super) fn new(
        authorities: Option<&Path>,
        client: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, String> {
        // The provider is passed explicitly: a library does not choose one for its whole process.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(authorities)?);
        let config = match client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("sslcert", &certificate)?;
                let found = PrivateKeyDer::from_pem_file(&key);
                let found = found.map_err(|error| unusable("sslkey", &key, error))?;
                config
                    .with_client_auth_cert(chain, found)
                    .map_err(|error| unusable("sslkey", &key, error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// The underlying configuration.
    pub(super) fn config(&self) -> &Arc<ClientConfig> {
        &self.0
    }
}

fn unusable(name: &str, path: &Path, why: impl fmt::Display) -> String {
    format!("{name} names {}: {why}", path.display())
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |why: &dyn fmt::Display| unusable(name, path, why);
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
    let found: Result<Vec<_>, _> = found.collect();
    match found.map_err(|error| unusable(&error))? {
        found if found.is_empty() => Err(unusable(&"it has no certificates, expected PEM")),
        found => Ok(found),
    }
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = authorities else {
        let known = rustls_native_certs::load_native_certs().certs;
        let (found, _) = roots.add_parsable_certificates(known);
        return match found {
            0 => Err(
                "this system trusts no authorities: install ca-certificates, or name a file with \
                      sslrootcert"
                    .to_owned(),
            ),
            _ => Ok(roots),
        };
    };
    for certificate in certificates("sslrootcert", path)? {
        roots.add(certificate).map_err(|error| unusable("sslrootcert", path, error))?;
    }
    Ok(roots)
}

/// The TLS error in a chain of errors, if there is one.
fn cause(error: &(dyn Error + 'static)) -> Option<rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found.clone());
        }
        // The source of an I/O error skips the error that it wraps.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
        if next.is_none() {
            // HTTP/2 keeps only the text of an error.
            let text = error.to_string();
            let alerts = ALERTS.map(rustls::Error::AlertReceived);
            return alerts.into_iter().find(|alert| text.ends_with(&alert.to_string()));
        }
    }
    None
}

/// Whether the server closed the connection during the TLS handshake.
fn is_cut_off(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().ends_with("tls handshake eof") {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether TLS was the reason why a connection failed.
pub(super) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    cause(error).is_some()
}

/// The likely problem of a server that closed an encrypted connection: its alert about a
/// certificate may be lost with the connection.
pub(super) fn suspected(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let is_ended = ["closed", "broken pipe", "reset by peer"].iter().any(|it| text.contains(it));
    is_ended.then_some(
        "it may want a certificate, named with sslcert and sslkey, not know who signed the one that is, \
         or not encrypt",
    )
}

/// What to do about a failed connection.
pub(super) fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const PLAIN: &str =
        "it does not answer as TLS has it: have it encrypt, or name the port where it does";
    if is_cut_off(error) {
        return Some(PLAIN);
    }
    match cause(error)? {
        rustls::Error::InvalidCertificate(why) => Some(match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "use a name that its certificate has, or have it made anew for this one"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew its certificate, or set this machine's clock"
            }
            _ => "name the authority of its certificate with sslrootcert",
        }),
        rustls::Error::InvalidMessage(_) => Some(PLAIN),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA | AlertDescription::CertificateUnknown => {
                Some("it does not know who signed the certificate of sslcert")
            }
            AlertDescription::CertificateRequired => {
                Some("it wants a certificate: name one with sslcert and sslkey")
            }
            AlertDescription::BadCertificate => Some(
                "it wants a certificate, named with sslcert and sslkey, or does not know who signed \
                 the one that is",
            ),
            _ => None,
        },
        _ => None,
    }
}
