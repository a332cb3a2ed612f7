//! An encrypted connection in the form that the client crate needs. The login is bound to the
//! server's certificate if the server supports that: an impostor cannot relay it.

use crate::control::tls::Tls;
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsConnector, client};
use x509_parser::parse_x509_certificate;

/// A connection to one host that is not made yet.
pub(in super::super) struct Connect {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

/// An established encrypted connection.
pub(in super::super) struct Encrypted<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = Connect;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connect, InvalidDnsNameError> {
        let host = ServerName::try_from(host.to_owned())?;
        Ok(Connect { config: Arc::clone(self.config()), host })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = TlsConnector::from(self.config).connect(self.host, stream);
        Box::pin(async move { connecting.await.map(Encrypted) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let shown = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let hashed = shown.and_then(|certificate| end_point(certificate));
        hashed.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// The hash of a certificate according to RFC 5929, section 4.1: with the hash function of its
/// signature, or SHA-256 if that function is broken. Signatures such as Ed25519 have none.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        // RSA with MD5, SHA-1 and SHA-256; ECDSA with SHA-1 and SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Some(Sha256::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => {
            Some(Sha384::digest(certificate).to_vec())
        }
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => {
            Some(Sha512::digest(certificate).to_vec())
        }
        _ => None,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_goes_by_the_signature() {
        for (algorithm, bytes) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).expect("random numbers");
            let made = rcgen::CertificateParams::new(vec!["x".to_owned()]).expect("a name");
            let made = made.self_signed(&key).expect("signed");
            assert_eq!(end_point(made.der()).map(|hash| hash.len()), bytes);
        }
        assert_eq!(end_point(b"none"), None);
    }
}
