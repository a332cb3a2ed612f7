//! Connections that nobody on the way can read, to a server that proves who it is.

mod stream;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Trusts the authorities in a PEM file, or those of the system, and shows a certificate of its own
    /// if there is one.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
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

/// What to do about a connection that was not made.
pub(super) fn remedy(error: &postgres::Error) -> Option<&'static str> {
    let source = std::error::Error::source(error)?;
    if source.to_string() == "server does not support TLS" {
        return Some("have it encrypt (ssl = on, with a certificate), or use a socket");
    }
    let inner = source.downcast_ref::<std::io::Error>()?.get_ref()?;
    match inner.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => Some(match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "use a name that its certificate has, or have it made anew for this one"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew its certificate, or set this machine's clock"
            }
            _ => "name the authority of its certificate with sslrootcert",
        }),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown => {
                Some("it does not know who signed the certificate of sslcert")
            }
            AlertDescription::CertificateRequired => {
                Some("it wants a certificate: name one with sslcert and sslkey")
            }
            _ => None,
        },
        _ => None,
    }
}
