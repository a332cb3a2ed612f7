//! What can go wrong with the server itself, as opposed to a single request.

use std::net::SocketAddr;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listener is reachable from other machines.
    #[error(
        "refusing to serve on {addr}: without TLS and a credential everyone on the network could \
         use and stop this cluster; expected a loopback address such as 127.0.0.1 or [::1]"
    )]
    NotLoopback {
        /// The address that was given.
        addr: SocketAddr,
    },
    /// The listener's address cannot be read.
    #[error("cannot read the listener's address: {0}")]
    Listener(#[source] std::io::Error),
}
