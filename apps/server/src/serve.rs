//! The accept loop: loopback only, one buffered write an answer, a deadline for headers, and an
//! end that lets open requests finish.

use crate::error::{Error, Result};
use crate::router::router;
use crate::state::ServerState;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long to wait after a failed accept: the usual cause is a lack of file descriptors, which
/// only the end of another connection mends.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves until `shutdown` resolves, then lets open requests finish.
///
/// # Errors
/// [`Error::NotLoopback`] unless the listener is bound to a loopback address.
pub async fn serve(
    listener: TcpListener,
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let addr = listener.local_addr().map_err(Error::Listener)?;
    if !addr.ip().is_loopback() {
        return Err(Error::NotLoopback { addr });
    }
    let server = Server::new(state.clone());
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, permit) = server.accept(&listener) => server.open(stream, permit),
        }
    }
    drop(listener);
    state.close();
    server.finish().await;
    Ok(())
}

struct Server {
    builder: http1::Builder,
    service: axum::Router,
    connections: Arc<Semaphore>,
    graceful: GracefulShutdown,
    drain_timeout: Duration,
}

impl Server {
    fn new(state: ServerState) -> Self {
        let config = state.config().clone();
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(config.header_timeout_ms));
        Self {
            builder,
            service: router(state),
            connections: Arc::new(Semaphore::new(config.connections_max)),
            graceful: GracefulShutdown::new(),
            drain_timeout: Duration::from_millis(config.drain_timeout_ms),
        }
    }

    /// The next connection, once there is room for one more.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed, so there is always a permit.
        let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, permit),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn open(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>) {
        // Without it the last segment of an answer waits for the client's delayed ack.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let service = TowerToHyperService::new(self.service.clone());
        let connection = self.builder.serve_connection(TokioIo::new(stream), service);
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(permit);
        });
    }

    async fn finish(self) {
        if tokio::time::timeout(self.drain_timeout, self.graceful.shutdown()).await.is_err() {
            tracing::warn!("open requests did not finish in time and are dropped");
        }
    }
}
