//! What can go wrong with the server itself, as opposed to a single request.

use lgp_sdk::ClusterError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listener is reachable from other machines.
    #[error(
        "refusing to serve on {addr} without TLS: keys and data would cross the network in the clear; \
         expected a loopback address such as 127.0.0.1 or [::1], or a certificate"
    )]
    NotLoopback {
        /// The address that was given.
        addr: SocketAddr,
    },
    /// The listener is reachable from other machines, and its protocol knows no credentials.
    #[error(
        "refusing to serve {what} on {addr}: its protocol has neither keys nor encryption; \
         expected a loopback address such as 127.0.0.1 or [::1]"
    )]
    NoCredentials {
        /// What was to be served.
        what: &'static str,
        /// The address that was given.
        addr: SocketAddr,
    },
    /// A file of the server's own.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it was not.
        source: std::io::Error,
    },
    /// A certificate that cannot be used.
    #[error("cannot use the certificate: {reason}")]
    Tls {
        /// Why.
        reason: String,
    },
    /// A load that could not be sent.
    #[error("cannot send the load: {source}")]
    Load {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An API key that makes no sense.
    #[error("{what}")]
    InvalidKey {
        /// What was wrong with it.
        what: String,
    },
    /// There is no API key of this name.
    #[error("no key '{id}'")]
    UnknownKey {
        /// The name.
        id: String,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// What the cluster keeps cannot be read or written.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The listener's address cannot be read.
    #[error("cannot read the listener's address: {0}")]
    Listener(#[source] std::io::Error),
}
