//! Workers trust workers: each end of a ring's connection shows the certificate of a worker of the
//! same cluster.
//!
//! Workers' certificates are made for clients, and name no address. What each end checks is that the
//! cluster's authority issued the other's certificate to a worker, whichever end listened.

use crate::error::Result;
use crate::net::pki::Identity;
use crate::net::role::{Protocol, Role};
use crate::net::tls::{chain, has_role, pki_error, provider, roots};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// What a rank listens with, and what it connects to others with.
pub(super) fn configs(identity: &Identity) -> Result<(QuicServerConfig, QuicClientConfig)> {
    let provider = provider();
    let inner =
        WebPkiClientVerifier::builder_with_provider(roots(&identity.ca_pem)?, provider.clone())
            .build()
            .map_err(pki_error)?;
    let workers = Arc::new(Workers { inner });
    let (cert, key) = chain(&identity.cert_pem, &identity.key_pem)?;
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .with_client_cert_verifier(Arc::clone(&workers) as _)
        .with_single_cert(cert.clone(), key.clone_key())
        .map_err(pki_error)?;
    server.alpn_protocols = vec![Protocol::Ring.alpn()];
    server.send_tls13_tickets = 0;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pki_error)?
        .dangerous()
        .with_custom_certificate_verifier(workers)
        .with_client_auth_cert(cert, key)
        .map_err(pki_error)?;
    client.alpn_protocols = vec![Protocol::Ring.alpn()];
    client.resumption = rustls::client::Resumption::disabled();
    let server = QuicServerConfig::try_from(server).map_err(pki_error)?;
    Ok((server, QuicClientConfig::try_from(client).map_err(pki_error)?))
}

/// Accepts certificates of the cluster's authority that state the role of a worker.
#[derive(Debug)]
struct Workers {
    inner: Arc<dyn ClientCertVerifier>,
}

impl Workers {
    fn verify(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.inner.verify_client_cert(cert, intermediates, now)?;
        match has_role(cert, Role::Worker) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

impl ClientCertVerifier for Workers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Workers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
