//! TLS of the listeners: a certificate from files or from the cluster's own authority, renewed without a restart.

mod names;
mod source;

use crate::error::{Error, Result};
use axum::http::uri::Authority;
use lgp_sdk::cluster::Pki;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use source::{Source, Stamp};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;

/// How often the certificate's files, or the machine's addresses, are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The certificate of the listeners. Clones share it.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    /// The source's stamp before the first read.
    stamp: Stamp,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Tls {
    /// A certificate from PEM files: the server's certificate with its chain, and its key. The files are read again
    /// when they change; unusable files are skipped with a line in the log.
    ///
    /// # Errors
    /// [`Error::Tls`] if the files do not hold a certificate and its key.
    pub fn files(cert: PathBuf, key: PathBuf) -> Result<Self> {
        Self::of(Source::files(cert, key))
    }

    /// A certificate of the cluster's own authority, for this machine's names and addresses. It is reissued before
    /// it expires, and when the addresses change.
    ///
    /// # Errors
    /// [`Error::Tls`] if the certificate cannot be issued.
    pub fn self_signed(pki: Pki) -> Result<Self> {
        Self::of(Source::authority(pki))
    }

    fn of(source: Source) -> Result<Self> {
        let stamp = source.stamp();
        let current = RwLock::new(Arc::new(source.read()?));
        Ok(Self { inner: Arc::new(Inner { source, stamp, current }) })
    }

    /// Accepts connections for the protocols with these names (RFC 7301).
    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls { reason: error.to_string() })?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Whether the certificate covers the host of an address.
    pub(crate) fn covers(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let Ok(name) = ServerName::try_from(host) else { return false };
        let current = self.current();
        let parsed =
            current.cert.first().map(|cert: &CertificateDer<'_>| ParsedCertificate::try_from(cert));
        matches!(parsed, Some(Ok(parsed)) if verify_server_name(&parsed, &name).is_ok())
    }

    /// Renews the certificate when needed, for as long as this future is polled.
    pub(crate) async fn keep_fresh(self) {
        let mut stamp = self.inner.stamp;
        loop {
            tokio::time::sleep(LOOK).await;
            let tls = self.clone();
            let looked = tokio::task::spawn_blocking(move || tls.renew(stamp)).await;
            stamp = looked.unwrap_or(stamp);
        }
    }

    /// Reads the certificate again if its source has changed; returns the source's new stamp.
    fn renew(&self, seen: Stamp) -> Stamp {
        let stamp = self.inner.source.stamp();
        if stamp == seen {
            return seen;
        }
        match self.inner.source.read() {
            Ok(key) => {
                *self.inner.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                tracing::info!(source = %self.inner.source, "the certificate was renewed");
            }
            // The files may be half written; they are read again after their next change.
            Err(error) => tracing::warn!(%error, "the earlier certificate is kept"),
        }
        stamp
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.inner.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Tls {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&format_args!("{}", self.inner.source)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> Authority {
        text.parse().expect("an authority")
    }

    #[test]
    fn files_are_read_again_when_they_change_and_only_if_they_are_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let write = |name: &str| {
            let pki = Pki::generate().expect("random numbers");
            let made = pki.issue_server(&[name.to_owned()], Duration::from_secs(60));
            let made = made.expect("a good name");
            std::fs::write(&cert, made.chain_pem).expect("ours");
            std::fs::write(&key, made.key_pem).expect("ours");
        };
        let open = || Tls::files(cert.clone(), key.clone());
        assert!(open().expect_err("no files").to_string().contains("cert.pem"));
        write("one.example");
        let tls = open().expect("a certificate and its key");
        let mut stamp = tls.inner.stamp;
        assert!(
            tls.covers(&authority("one.example:8000")) && !tls.covers(&authority("two.example"))
        );

        std::fs::write(&key, "no key").expect("ours");
        stamp = tls.renew(stamp);
        assert!(tls.covers(&authority("one.example")), "the earlier one is kept");
        write("two.example");
        stamp = tls.renew(stamp);
        assert!(tls.covers(&authority("two.example")) && !tls.covers(&authority("one.example")));
        assert_eq!(tls.renew(stamp), stamp);

        let other = Pki::generate().expect("random numbers");
        let other = other.issue_server(&["x".to_owned()], Duration::from_secs(60)).expect("a name");
        std::fs::write(&key, other.key_pem).expect("ours");
        assert!(open().is_err(), "the key of another certificate");
    }

    #[test]
    fn the_authoritys_certificate_is_for_this_machine() {
        let tls = Tls::self_signed(Pki::generate().expect("random numbers")).expect("issued");
        for host in ["localhost:8000", "127.0.0.1", "[::1]:1"] {
            assert!(tls.covers(&authority(host)), "{host}");
        }
        for host in ["evil.example", "192.0.2.1"] {
            assert!(!tls.covers(&authority(host)), "{host}");
        }
    }
}
