//! The REST interface over a running cluster.

use crate::cluster::launch::Cluster;
use crate::failure::{Failure, Result};
use lgp_server::{ServerConfig, ServerState};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Binds the REST interface's address.
///
/// # Errors
/// `address_in_use`; `address_not_loopback` where everyone on the network could use the cluster.
pub(crate) async fn bind(addr: SocketAddr) -> Result<TcpListener> {
    if !addr.ip().is_loopback() {
        let message = format!(
            "refusing to serve REST on {addr}: everyone on the network could use and stop this cluster"
        );
        return Err(Failure::new("address_not_loopback", message)
            .hint("use a loopback address such as 127.0.0.1:8000"));
    }
    TcpListener::bind(addr).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::address_in_use("http", addr, "tcp"),
        _ => Failure::new("address_unusable", format!("cannot listen on {addr}/tcp: {error}")),
    })
}

/// A REST interface that serves.
pub(crate) struct Service {
    url: String,
    end: oneshot::Sender<()>,
    task: JoinHandle<lgp_server::Result<()>>,
}

/// Serves a cluster until [`Service::finish`].
pub(crate) fn serve(
    cluster: &Cluster,
    listener: TcpListener,
    config: ServerConfig,
) -> Result<Service> {
    let addr = listener.local_addr().map_err(Failure::internal)?;
    let driver = Arc::new(cluster.driver.clone());
    let state = ServerState::new(
        config,
        cluster.coordinator.clone(),
        cluster.repository.clone(),
        Some(driver),
    );
    let (end, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(lgp_server::serve(listener, state, async {
        // A dropped sender ends the service just as well.
        let _ = ended.await;
    }));
    Ok(Service { url: format!("http://{addr}"), end, task })
}

impl Service {
    /// Base URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Lets open requests finish and ends.
    pub(crate) async fn finish(self) {
        // A service that has ended already needs no telling.
        let _ = self.end.send(());
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the REST interface failed"),
            Err(error) => tracing::error!(%error, "the REST interface failed"),
        }
    }
}
