//! Mutual TLS and roles.

use crate::error::{Error, Result};
use crate::net::identity::certificate::has_role;
use crate::net::identity::pki::{CaHash, Identity, Pki};
use crate::net::identity::role::{Protocol, Role};
use crate::net::outside::planted_here;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn pki_error(error: impl std::fmt::Display) -> Error {
    Error::Pki { message: error.to_string() }
}

/// The provider is passed explicitly: a library does not choose one for its whole process.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn roots(ca_pem: &str) -> Result<Arc<RootCertStore>> {
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(pki_error)?;
    root(ca).map_err(pki_error)
}

fn root(ca: CertificateDer<'static>) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca)?;
    Ok(Arc::new(roots))
}

pub(crate) type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(crate) fn chain(cert_pem: &str, key_pem: &str) -> Result<Chain> {
    let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(pki_error)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(pki_error)?;
    Ok((vec![cert], key))
}

/// The coordinator's side: takes certificates of this cluster, also expired ones that may still be
/// renewed, and peers without one. Which protocol a peer may speak is decided when the peer says
/// which one it wants; see [`crate::net::coordinator::gate`].
pub(crate) fn server(pki: &Pki) -> Result<QuicServerConfig> {
    let members = Members::new(pki.ca_pem(), &Role::ALL, false, pki.absence_max())?;
    let (cert_pem, key_pem) = pki.issue_coordinator()?;
    let (mut certs, key) = chain(&cert_pem, &key_pem)?;
    // Joiners know the authority by its hash only.
    certs.push(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).map_err(pki_error)?);
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .with_client_cert_verifier(members)
        .with_single_cert(certs, key)
        .map_err(pki_error)?;
    config.alpn_protocols = Protocol::all();
    // Connections live long and 0-RTT is off: tickets would never be used.
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).map_err(pki_error)
}

/// A member's side: trusts only the coordinator of its own cluster.
pub(crate) fn client(identity: &Identity, protocol: Protocol) -> Result<QuicClientConfig> {
    let (cert, key) = chain(&identity.cert_pem, &identity.key_pem)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .with_root_certificates(roots(&identity.ca_pem)?)
        .with_client_auth_cert(cert, key)
        .map_err(pki_error)?;
    config.alpn_protocols = vec![protocol.alpn()];
    QuicClientConfig::try_from(config).map_err(pki_error)
}

/// A joiner's side: has no certificate yet, and trusts the one coordinator whose authority has
/// this hash.
pub(crate) fn joiner(expected: CaHash) -> Result<QuicClientConfig> {
    let provider = provider();
    let verifier = Arc::new(OneAuthority { expected, provider: Arc::clone(&provider) });
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![Protocol::Join.alpn()];
    // The joiner connects once; nothing is to be resumed.
    config.resumption = rustls::client::Resumption::disabled();
    QuicClientConfig::try_from(config).map_err(pki_error)
}

/// Signatures of the handshake are checked in the same way for every certificate.
macro_rules! signatures_by_provider {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// Accepts certificates of the cluster's authority that state one of some roles, whichever end
/// shows them: members' certificates are made for clients, and name no address.
#[derive(Debug)]
pub(crate) struct Members {
    inner: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
    roles: &'static [Role],
    /// Whether a peer that connects must show a certificate.
    mandatory: bool,
    /// How long ago a certificate may have expired.
    absence_max: Duration,
}

impl Members {
    pub(crate) fn new(
        ca_pem: &str,
        roles: &'static [Role],
        mandatory: bool,
        absence_max: Duration,
    ) -> Result<Arc<Self>> {
        let provider = provider();
        let inner = WebPkiClientVerifier::builder_with_provider(roots(ca_pem)?, provider.clone());
        let inner = inner.build().map_err(pki_error)?;
        Ok(Arc::new(Self { inner, provider, roles, mandatory, absence_max }))
    }

    fn verify(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.verify_chain(cert, intermediates, now)?;
        match self.roles.iter().any(|role| has_role(cert, *role)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_chain(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let error = match self.inner.verify_client_cert(cert, intermediates, now) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after, ..
        }) = &error
        else {
            return Err(error);
        };
        let away_s = now.as_secs().saturating_sub(not_after.as_secs());
        if away_s > self.absence_max.as_secs() || planted_here!(RefuseExpired) {
            return Err(error);
        }
        // Expiry is found first, so the rest is checked as of the certificate's last second.
        self.inner.verify_client_cert(cert, intermediates, *not_after).map(drop)
    }
}

impl ClientCertVerifier for Members {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    signatures_by_provider!();
}

impl ServerCertVerifier for Members {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_by_provider!();
}

/// Accepts a coordinator whose chain contains the authority with the expected hash, and whose own
/// certificate that authority issued: the authority's certificate is public, and no proof alone.
#[derive(Debug)]
struct OneAuthority {
    expected: CaHash,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OneAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = intermediates.iter().find(|cert| CaHash::of(cert) == self.expected);
        let ca = ca.ok_or(CertificateError::UnknownIssuer)?.clone().into_owned();
        let inner = WebPkiServerVerifier::builder_with_provider(root(ca)?, self.provider.clone())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        inner.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    signatures_by_provider!();
}
