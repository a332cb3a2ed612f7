//! QUIC settings that differ from quinn's defaults, and the sockets below.

use crate::error::{Error, Result};
use crate::net::outside;
use quinn::{
    AsyncUdpSocket, Connection, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig,
    IdleTimeout, ServerConfig, TransportConfig, VarInt,
};
use ring::hmac;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

const KEEPALIVE: Duration = Duration::from_millis(500);
/// Silence after which the transport gives up: a little above the core's own limit, which decides
/// about tasks and gives better reasons.
const IDLE_TIMEOUT_MS: u32 = 2_500;
/// Unread bytes that a connection may hold, that the connection of a caller may hold, of which
/// there may be many, and that each of their streams may hold.
const CONNECTION_WINDOW: u32 = 32 << 20;
const CALLER_WINDOW: u32 = 4 << 20;
const STREAM_WINDOW: u32 = 8 << 20;

/// Bytes of the id of a connection to a coordinator.
const ID_BYTES: usize = 8;
/// The least time between two answers to packets of unknown connections: many workers come back at
/// once, and each answer is smaller than its packet.
const RESETS: Duration = Duration::from_millis(1);
/// Unread bytes that the connection of an unknown peer may hold.
const CAUTIOUS_WINDOW: u32 = 64 << 10;

/// Settings for a connection on which the peer may open so many streams at once.
pub(crate) fn config(bidirectional: u32, unidirectional: u32) -> Arc<TransportConfig> {
    Arc::new(settings(bidirectional, unidirectional))
}

/// As [`config`], for peers that have not shown who they are: bytes that they send and nothing
/// reads must not fill the memory.
pub(crate) fn cautious(bidirectional: u32, unidirectional: u32) -> Arc<TransportConfig> {
    let mut config = settings(bidirectional, unidirectional);
    config.receive_window(VarInt::from_u32(CAUTIOUS_WINDOW));
    Arc::new(config)
}

/// Ends the caution: the peer has shown who it is.
pub(crate) fn trust(connection: &Connection) {
    connection.set_receive_window(VarInt::from_u32(CONNECTION_WINDOW));
}

/// As [`trust`], for a caller.
pub(crate) fn trust_caller(connection: &Connection) {
    connection.set_receive_window(VarInt::from_u32(CALLER_WINDOW));
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
pub(crate) fn streams_for(slots: u32) -> u32 {
    slots.saturating_mul(2).saturating_add(64)
}

/// Any port of this machine from which an address can be reached.
pub(crate) fn any_for(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    }
}

/// Tells whether an endpoint's socket is still open, which it is for a while after `close`.
pub(crate) struct SocketWatch(Weak<dyn AsyncUdpSocket>);

impl SocketWatch {
    /// Resolves once the socket is closed and its port free.
    pub(crate) async fn closed(&self) {
        // The last holder is a task of quinn, which does not report its end.
        while self.0.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Settings of a coordinator's endpoint. With the key of its predecessors it knows the tokens that
/// they gave to peers, and resets the connections of peers that still speak to a predecessor.
pub(crate) fn successor(reset_key: hmac::Key) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    config.cid_generator(|| Box::new(AnyId)).min_reset_interval(RESETS);
    config
}

/// Random connection ids: each may have been a predecessor's.
struct AnyId;

impl ConnectionIdGenerator for AnyId {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&rand::random::<[u8; ID_BYTES]>())
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// An endpoint on a UDP socket of its own.
pub(crate) fn bind(
    addr: SocketAddr,
    server: Option<ServerConfig>,
) -> Result<(Endpoint, SocketWatch)> {
    bind_as(EndpointConfig::default(), addr, server)
}

/// The same for an endpoint with settings of its own.
pub(crate) fn bind_as(
    mut config: EndpointConfig,
    addr: SocketAddr,
    server: Option<ServerConfig>,
) -> Result<(Endpoint, SocketWatch)> {
    config.rng_seed(outside::endpoint_seed());
    let bind = || -> std::io::Result<(Endpoint, SocketWatch)> {
        let (socket, runtime) = outside::bind(addr)?;
        let watch = SocketWatch(Arc::downgrade(&socket));
        Ok((Endpoint::new_with_abstract_socket(config, server, socket, runtime)?, watch))
    };
    bind().map_err(|source| Error::Bind { addr, source })
}
