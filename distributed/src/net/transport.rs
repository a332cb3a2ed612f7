//! QUIC settings that differ from quinn's defaults, and the sockets below.

use crate::error::{Error, Result};
use quinn::{
    AsyncUdpSocket, Connection, Endpoint, EndpointConfig, IdleTimeout, Runtime, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

const KEEPALIVE: Duration = Duration::from_millis(500);
/// Silence after which the transport gives up: a little above the core's own limit, which
/// decides about tasks and has the better reasons to show.
const IDLE_TIMEOUT_MS: u32 = 2_500;
/// Unread bytes that a connection may hold, and each of its streams.
const CONNECTION_WINDOW: u32 = 32 << 20;
const STREAM_WINDOW: u32 = 8 << 20;
/// Bytes asked of the kernel for a socket's buffers; it may grant less.
const SOCKET_BUFFER: usize = 4 << 20;

/// Unread bytes that a connection of somebody unknown may hold.
const CAUTIOUS_WINDOW: u32 = 64 << 10;

/// Settings for a connection on which the peer may open so many streams at once.
pub(super) fn config(bidirectional: u32, unidirectional: u32) -> Arc<TransportConfig> {
    Arc::new(settings(bidirectional, unidirectional))
}

/// As [`config`], for peers who have yet to show who they are: what they send and nobody reads must
/// not fill the memory.
pub(super) fn cautious(bidirectional: u32, unidirectional: u32) -> Arc<TransportConfig> {
    let mut config = settings(bidirectional, unidirectional);
    config.receive_window(VarInt::from_u32(CAUTIOUS_WINDOW));
    Arc::new(config)
}

/// Ends the caution: the peer has shown who it is.
pub(super) fn trust(connection: &Connection) {
    connection.set_receive_window(VarInt::from_u32(CONNECTION_WINDOW));
}

fn settings(bidirectional: u32, unidirectional: u32) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .keep_alive_interval(Some(KEEPALIVE))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .send_fairness(false)
        .max_concurrent_bidi_streams(VarInt::from_u32(bidirectional))
        .max_concurrent_uni_streams(VarInt::from_u32(unidirectional))
        .datagram_receive_buffer_size(None);
    config
}

/// Streams that a worker with so many slots lets the coordinator open.
///
/// The coordinator counts slots itself. A finished stream gives its credit back only when the
/// answer's acknowledgement has arrived, which may take 25 ms: without spare credit a worker
/// with few slots would stand idle that long.
pub(super) fn streams_for(slots: u32) -> u32 {
    slots.saturating_mul(2).saturating_add(64)
}

/// Any port of this machine from which an address can be reached.
pub(super) fn any_for(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Tells whether an endpoint's socket is still open, which it is for a while after `close`.
pub(super) struct SocketWatch(Weak<dyn AsyncUdpSocket>);

impl SocketWatch {
    /// Resolves once the socket is closed and its port free.
    pub(super) async fn closed(&self) {
        // The last holder is a task of quinn's, which says nothing when it ends.
        while self.0.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An endpoint on a UDP socket of its own.
pub(super) fn bind(
    addr: SocketAddr,
    server: Option<ServerConfig>,
) -> Result<(Endpoint, SocketWatch)> {
    let bind = || -> std::io::Result<(Endpoint, SocketWatch)> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        // Linux reports twice what it grants, its own bookkeeping included.
        let granted = socket.recv_buffer_size()? / 2;
        if granted < SOCKET_BUFFER {
            tracing::debug!(
                granted,
                wanted = SOCKET_BUFFER,
                "the kernel grants smaller UDP buffers; raise net.core.rmem_max for large tensors"
            );
        }
        socket.bind(&addr.into())?;
        let runtime = Arc::new(TokioRuntime);
        let socket = runtime.wrap_udp_socket(socket.into())?;
        let watch = SocketWatch(Arc::downgrade(&socket));
        let config = EndpointConfig::default();
        Ok((Endpoint::new_with_abstract_socket(config, server, socket, runtime)?, watch))
    };
    bind().map_err(|source| Error::Bind { addr, source })
}
