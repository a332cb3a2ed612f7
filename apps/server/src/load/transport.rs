//! Connections to the server, with TLS for https URLs.

use super::{Load, Result};
use hyper::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A stream to the server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Opens a connection; `protocol` is negotiated by TLS (ALPN).
pub(crate) async fn connect(run: &Load, uri: &Uri, protocol: &[u8]) -> Result<Box<dyn Stream>> {
    let authority = uri.authority().ok_or("the URL has no host")?;
    let port = authority.port_u16().ok_or("the URL has no port")?;
    let stream = TcpStream::connect((authority.host(), port)).await?;
    stream.set_nodelay(true)?;
    if uri.scheme_str() != Some("https") {
        return Ok(Box::new(stream));
    }
    let ca = run.ca.as_ref().ok_or("--ca is needed for https")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from(authority.host().to_owned())?;
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}
