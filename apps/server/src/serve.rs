//! The accept loop: TLS for other machines, one buffered write per answer, time limits for handshakes and headers,
//! and a shutdown that lets open requests finish.

mod activity;
mod idle;
mod protocol;
mod sent;

use crate::error::{Error, Result};
use crate::peer::Peer;
use crate::router::router;
use crate::state::ServerState;
use crate::tls::Tls;
use crate::{grpc, immich};
pub(crate) use activity::{Activity, UnderWay};
use axum::Router;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
pub(crate) use idle::Connections;
use idle::LEAVE;
use protocol::{Builder, Graceful, Protocol};
pub(crate) use sent::Endless;
use sent::Sent;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// The pause after a failed accept. The usual cause is a lack of file descriptors, and only the end of another
/// connection frees one.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Checks for stalled connections in each stall limit.
const LOOKS: u32 = 24;
/// The divisor of the stall limit while answers are short of room.
const SHORT: u32 = 6;

/// Serves REST until `shutdown` resolves, then lets open requests finish.
///
/// # Errors
/// [`Error::NotLoopback`] without TLS, unless the listener is bound to a loopback address;
/// [`Error::Tls`].
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let service = router(state.clone());
    listen(listener, tls, (Protocol::Http1, service), state, shutdown).await
}

/// Serves gRPC like [`serve`].
///
/// # Errors
/// Those of [`serve`].
pub async fn serve_grpc(
    listener: TcpListener,
    tls: Option<Tls>,
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let service = grpc::router(state.clone());
    listen(listener, tls, (Protocol::Http2, service), state, shutdown).await
}

/// Serves Immich's machine learning like [`serve`], on loopback only: its clients send no key.
///
/// # Errors
/// [`Error::NoCredentials`] unless the listener is bound to a loopback address.
pub async fn serve_immich(
    listener: TcpListener,
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    check_loopback(&listener, "Immich's machine learning")?;
    let service = immich::router(state.clone());
    listen(listener, None, (Protocol::Http1, service), state, shutdown).await
}

/// Refuses an address that other machines can reach, for protocols without credentials.
pub(crate) fn check_loopback(listener: &TcpListener, what: &'static str) -> Result<()> {
    let addr = listener.local_addr().map_err(Error::Listener)?;
    match addr.ip().is_loopback() {
        true => Ok(()),
        false => Err(Error::NoCredentials { what, addr }),
    }
}

async fn listen(
    listener: TcpListener,
    tls: Option<Tls>,
    (protocol, service): (Protocol, Router),
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let addr = listener.local_addr().map_err(Error::Listener)?;
    let is_local = addr.ip().is_loopback();
    if !is_local && tls.is_none() {
        return Err(Error::NotLoopback { addr });
    }
    let acceptor = tls.as_ref().map(|tls| tls.acceptor(&[protocol.name()])).transpose()?;
    let server = Server::new(state.clone(), service, protocol, acceptor);
    let fresh = async {
        match tls.clone() {
            Some(tls) => tls.keep_fresh().await,
            None => std::future::pending().await,
        }
    };
    {
        let accepting = server.accept(&listener);
        tokio::pin!(shutdown, fresh, accepting);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = &mut fresh => {}
                (stream, peer, place) = &mut accepting => {
                    server.open(stream, Peer::new(peer, is_local, tls.clone()), place);
                    accepting.set(server.accept(&listener));
                }
            }
        }
    }
    drop(listener);
    state.close();
    server.finish().await;
    Ok(())
}

struct Server {
    builder: Builder,
    acceptor: Option<TlsAcceptor>,
    service: Router,
    state: ServerState,
    connections: Connections,
    handshake_timeout: Duration,
    drain_timeout: Duration,
}

impl Server {
    fn new(
        state: ServerState,
        service: Router,
        protocol: Protocol,
        acceptor: Option<TlsAcceptor>,
    ) -> Self {
        let config = state.config();
        Self {
            builder: protocol.builder(config),
            acceptor,
            service,
            connections: Connections::new(config.connections_max),
            handshake_timeout: Duration::from_millis(config.header_timeout_ms),
            drain_timeout: Duration::from_millis(config.drain_timeout_ms),
            state,
        }
    }

    /// Accepts the next connection, once there is room for it.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, Arc<Activity>) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => return (stream, peer, self.connections.room().await),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn open(&self, stream: TcpStream, peer: Peer, activity: Arc<Activity>) {
        // Without TCP_NODELAY, an answer's last segment waits for the client's delayed ack.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (acceptor, limit) = (self.acceptor.clone(), self.handshake_timeout);
        let connection = Connection {
            builder: self.builder.of(self.connections.taken()),
            service: self.service.clone(),
            state: self.state.clone(),
            peer,
            activity,
        };
        tokio::spawn(async move {
            let Some(acceptor) = acceptor else { return connection.drive(stream).await };
            let handshake = tokio::select! {
                done = tokio::time::timeout(limit, acceptor.accept(stream)) => done,
                () = connection.activity.asked_to_leave() => return,
            };
            match handshake {
                Ok(Ok(stream)) => connection.drive(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                Err(_) => tracing::debug!("no TLS in time"),
            }
        });
    }

    async fn finish(self) {
        if tokio::time::timeout(self.drain_timeout, self.connections.all_ended()).await.is_err() {
            tracing::warn!("open requests did not finish in time and are dropped");
        }
    }
}

/// One connection, and the service for its requests.
struct Connection {
    builder: Builder,
    service: Router,
    state: ServerState,
    peer: Peer,
    activity: Arc<Activity>,
}

impl Connection {
    /// Serves the connection to its end, or until it must make room for another one.
    async fn drive(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { builder, service, state, peer, activity } = self;
        let begun = Arc::clone(&activity);
        let service = tower::service_fn(move |mut request: Request<Incoming>| {
            let under_way = begun.begin();
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(Arc::downgrade(&under_way));
            let answer = service.clone().oneshot(request);
            async move {
                answer.await.map(|answer: Response| {
                    let is_endless = answer.extensions().get::<Endless>().is_some();
                    answer.map(|body| Sent::new(body, under_way, is_endless))
                })
            }
        });
        let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(service));
        match builder {
            Builder::Http1(builder) => {
                let connection = builder.serve_connection(stream, service);
                attend(connection, &state, &activity).await;
            }
            Builder::Http2(builder) => {
                let connection = builder.serve_connection(stream, service);
                attend(connection, &state, &activity).await;
            }
        }
    }
}

/// Drives a connection. Shuts it down when the server stops or another connection needs its room. Cuts it off if
/// its client takes nothing of an answer for the stall limit, which is shorter while answers are short of room.
async fn attend(connection: impl Graceful, state: &ServerState, activity: &Activity) {
    tokio::pin!(connection);
    let closing = state.closing();
    tokio::pin!(closing);
    let (mut is_closing, mut leaves_at) = (false, None);
    let stall = state.config().body_timeout();
    let mut looks = tokio::time::interval((stall / LOOKS).max(Duration::from_millis(1)));
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut closing, if !is_closing => {
                is_closing = true;
                connection.as_mut().shut_down();
            }
            () = activity.asked_to_leave(), if leaves_at.is_none() => {
                leaves_at = Some(Instant::now() + LEAVE);
                connection.as_mut().shut_down();
            }
            _ = looks.tick() => {
                let limit = if state.answers().is_short() { stall / SHORT } else { stall };
                if activity.is_stalled(limit) {
                    tracing::debug!("a client does not take its answer");
                    return;
                }
            }
            () = sleep_until(leaves_at), if leaves_at.is_some() => {
                if !activity.is_busy() {
                    return;
                }
                leaves_at = Some(Instant::now() + LEAVE);
            }
        }
    }
}

/// Resolves at a moment; never for `None`.
async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
