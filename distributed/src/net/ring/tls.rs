//! Workers trust workers: each end of a ring's connection shows the certificate of a worker of the
//! same cluster.
//!
//! Workers' certificates are made for clients, and name no address. Each end checks that the
//! cluster's authority issued the other's certificate to a worker, whichever end listened.

use crate::error::Result;
use crate::net::identity::pki::Identity;
use crate::net::identity::role::{Protocol, Role};
use crate::net::identity::tls::{Members, chain, pki_error, provider};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use std::sync::Arc;
use std::time::Duration;

/// The settings for listening, and for connecting to other ranks.
pub(super) fn configs(identity: &Identity) -> Result<(QuicServerConfig, QuicClientConfig)> {
    let provider = provider();
    // Ranks cannot renew for one another, and do not ask who was revoked.
    let workers = Members::new(&identity.ca_pem, &[Role::Worker], true, Duration::ZERO)?;
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
