//! The other end of a connection.

use crate::tls::Tls;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection, whether its listener is on loopback, and the certificate that the
/// listener showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    addr: Option<SocketAddr>,
    is_local: bool,
    tls: Option<Tls>,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, is_local: bool, tls: Option<Tls>) -> Self {
        Self { addr: Some(addr), is_local, tls }
    }

    /// The certificate, if the connection is encrypted.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The sender of a request; unknown unless the request came through [`serve`](crate::serve).
    pub(crate) fn of(request: &Request) -> Self {
        request.extensions().get().cloned().unwrap_or_default()
    }

    /// Whether only programs on this machine can reach the listener.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            Some(addr) => write!(f, "{addr}"),
            None => f.write_str("-"),
        }
    }
}
