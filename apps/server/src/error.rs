//! Errors of the server itself, as opposed to those of a single request.

use lgp_sdk::cluster::Error as ClusterError;
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
        /// The service that was refused.
        what: &'static str,
        /// The address that was given.
        addr: SocketAddr,
    },
    /// One of the server's own files cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A certificate that cannot be used.
    #[error("cannot use the certificate: {reason}")]
    Tls {
        /// Why it cannot be used.
        reason: String,
    },
    /// A load that could not be sent.
    #[error("cannot send the load: {source}")]
    Load {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An invalid request for an API key.
    #[error("{what}")]
    InvalidKey {
        /// What is wrong with it.
        what: String,
    },
    /// No API key has this id.
    #[error("no key '{id}'")]
    UnknownKey {
        /// The id.
        id: String,
    },
    /// The system provides no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The cluster's stored state cannot be read or written.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The listener's address cannot be read.
    #[error("cannot read the listener's address: {0}")]
    Listener(#[source] std::io::Error),
}
