//! Mutual TLS: who may be what. Roles and names are DNS names in the certificates' SAN.

use crate::error::{Error, Result};
use crate::net::pki::{Identity, Pki};
use crate::worker_info::WorkerId;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// What the peers agree to speak.
const ALPN: &[u8] = b"legacy-gpu/1";
/// The SAN of every coordinator's certificate.
pub(super) const COORDINATOR_ROLE: &str = "coordinator.legacy-gpu.internal";
/// The SAN of every worker's certificate.
pub(super) const WORKER_ROLE: &str = "worker.legacy-gpu.internal";

/// The SAN of one worker's certificate.
pub(super) fn worker_name(name: &WorkerId) -> String {
    format!("{name}.{WORKER_ROLE}")
}

/// Whether a certificate states the name of this worker.
pub(super) fn names_worker(cert: &CertificateDer<'_>, name: &WorkerId) -> bool {
    states(cert, worker_name(name)).is_ok()
}

fn states(cert: &CertificateDer<'_>, name: String) -> Result<(), rustls::Error> {
    let cert = ParsedCertificate::try_from(cert)?;
    let name = ServerName::try_from(name)
        .map_err(|e| rustls::Error::General(format!("not a server name: {e}")))?;
    verify_server_name(&cert, &name)
}

fn pki_error(error: impl std::fmt::Display) -> Error {
    Error::Pki { message: error.to_string() }
}

/// The provider is passed explicitly: a library does not choose one for its whole process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(ca_pem: &str) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(pki_error)?;
    roots.add(ca).map_err(pki_error)?;
    Ok(Arc::new(roots))
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn chain(cert_pem: &str, key_pem: &str) -> Result<Chain> {
    let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(pki_error)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(pki_error)?;
    Ok((vec![cert], key))
}

/// The coordinator's side: asks for a certificate of this cluster with the role of a worker.
pub(super) fn server(pki: &Pki) -> Result<QuicServerConfig> {
    let provider = provider();
    let inner =
        WebPkiClientVerifier::builder_with_provider(roots(&pki.ca_pem())?, provider.clone())
            .build()
            .map_err(pki_error)?;
    let (cert_pem, key_pem) = pki.issue_coordinator()?;
    let (cert, key) = chain(&cert_pem, &key_pem)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .with_client_cert_verifier(Arc::new(WorkersOnly { inner }))
        .with_single_cert(cert, key)
        .map_err(pki_error)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Connections live long and 0-RTT is off: tickets would never be used.
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).map_err(pki_error)
}

/// A worker's side: trusts only the coordinator of its own cluster.
pub(super) fn client(identity: &Identity) -> Result<QuicClientConfig> {
    let (cert, key) = chain(&identity.cert_pem, &identity.key_pem)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .with_root_certificates(roots(&identity.ca_pem)?)
        .with_client_auth_cert(cert, key)
        .map_err(pki_error)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    QuicClientConfig::try_from(config).map_err(pki_error)
}

/// Accepts certificates of the cluster's authority that state the role of a worker.
#[derive(Debug)]
struct WorkersOnly {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for WorkersOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        states(end_entity, WORKER_ROLE.to_owned())?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
