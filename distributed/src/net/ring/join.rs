//! How a rank joins its ring: it listens, learns where the others are, connects to the next rank
//! and waits for the one before.

use super::carry::Wire;
use super::config::{RingConfig, RingPeers};
use super::error::RingError;
use super::links::Links;
use super::tls;
use crate::error::{Error, Result};
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::rpc;
use crate::net::transport::wire;
use crate::proto::rendezvous::{Claim, Meeting, MeetingRefusal, check};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, Incoming, RecvStream, SendStream,
    ServerConfig,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time for a peer that connected to say which rank it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Most greetings at once.
const GREETINGS_MAX: usize = 16;
/// Wait before a neighbour that does not answer is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(50);
/// How late an answer of the coordinator may be.
const GRACE: Duration = Duration::from_millis(500);

/// The first message on a ring's stream: which ring it is, and who sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    meeting: [u8; 16],
    rank: u32,
    size: u32,
}

/// Connects a rank with its neighbours. After that the endpoint takes no more connections.
pub(super) async fn join(config: &RingConfig, deadline: Instant) -> Result<(Endpoint, Wire)> {
    let (server, client) = tls::configs(&config.identity)?;
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(endpoint::cautious(0, 1)).migration(false);
    let mut client = ClientConfig::new(Arc::new(client));
    client.transport_config(endpoint::config(0, 0));
    let (endpoint, _) = endpoint::bind(listen(config)?, Some(server))?;
    let Meeting { id, addrs } = match &config.peers {
        RingPeers::Coordinator(addr) => meet(&endpoint, config, *addr, deadline).await?,
        RingPeers::Addresses(addrs) => Meeting { id: name_id(&config.group), addrs: addrs.clone() },
    };
    let &RingConfig { rank, size, .. } = config;
    let (before, next) = ((rank + size - 1) % size, (rank + 1) % size);
    let addr = usize::try_from(next).ok().and_then(|next| addrs.get(next).copied());
    let addr = addr.ok_or_else(|| addresses(addrs.len(), size))?;
    let absent = |rank: u32| Error::from(RingError::Absent { rank, waited: config.timeout });
    let hello = Hello { meeting: id, rank, size };
    let (reached, watched) = oneshot::channel();
    let connecting = async {
        let connected = connect(&endpoint, &client, (next, addr), &hello);
        let connected = timeout_at(deadline, connected).await.map_err(|_| absent(next))??;
        // The receiver is gone where the other direction has failed.
        let _ = reached.send(connected.0.clone());
        Ok(connected)
    };
    let expected = Hello { meeting: id, rank: before, size };
    let accepting = async {
        tokio::select! {
            accepted = timeout_at(deadline, accept(&endpoint, expected, rank)) => {
                accepted.map_err(|_| absent(before))?
            }
            error = end_of(watched) => Err(RingError::of(next, &error).into()),
        }
    };
    let ((to, send), (from, recv)) = tokio::try_join!(connecting, accepting)?;
    endpoint.set_server_config(None);
    endpoint::trust(&from);
    let links = Links::new(rank, (before, from), (next, to));
    Ok((endpoint, Wire::new(links, send, recv)))
}

/// How a connection ends that is still to be made.
async fn end_of(connection: oneshot::Receiver<Connection>) -> ConnectionError {
    match connection.await {
        Ok(connection) => connection.closed().await,
        Err(_) => std::future::pending().await,
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn listen(config: &RingConfig) -> Result<SocketAddr> {
    check(&config.group, config.rank, config.size).map_err(RingError::from)?;
    match (&config.peers, config.listen) {
        (RingPeers::Addresses(addrs), _) if u32::try_from(addrs.len()) != Ok(config.size) => {
            Err(addresses(addrs.len(), config.size))
        }
        (_, Some(addr)) => Ok(addr),
        (RingPeers::Coordinator(addr), None) => Ok(endpoint::any_for(*addr)),
        (RingPeers::Addresses(addrs), None) => {
            let own = usize::try_from(config.rank).ok().and_then(|rank| addrs.get(rank).copied());
            own.ok_or_else(|| addresses(addrs.len(), config.size))
        }
    }
}

fn addresses(given: usize, size: u32) -> Error {
    let expected = format!("one of each of {size} ranks");
    RingError::Argument { what: "number of addresses", given, expected }.into()
}

/// The id of the meeting where ranks are given addresses, and no coordinator makes one.
fn name_id(group: &str) -> [u8; 16] {
    Sha256::digest(group).first_chunk().copied().unwrap_or_default()
}

/// Asks the coordinator for the addresses of the others. The request leaves from the socket that
/// listens, so that the coordinator sees the address at which others reach it.
async fn meet(
    endpoint: &Endpoint,
    config: &RingConfig,
    addr: SocketAddr,
    deadline: Instant,
) -> Result<Meeting> {
    let mut client = ClientConfig::new(Arc::new(crate::net::identity::tls::client(
        &config.identity,
        Protocol::Ring,
    )?));
    client.transport_config(endpoint::config(0, 0));
    let claim = Claim {
        group: config.group.clone(),
        rank: config.rank,
        size: config.size,
        patience_ms: u32::try_from(left(deadline).as_millis()).unwrap_or(u32::MAX),
    };
    let asking = async {
        let connecting =
            endpoint.connect_with(client, addr, COORDINATOR_SAN).map_err(wire::lost)?;
        let connection = connecting.await.map_err(|error| refused(addr, &error))?;
        let exchange = async {
            let (mut send, mut recv) = connection.open_bi().await.map_err(wire::lost)?;
            rpc::write(&mut send, &claim).await?;
            send.finish().map_err(wire::lost)?;
            rpc::read::<Result<Meeting, MeetingRefusal>>(&mut recv).await
        };
        let answer = exchange.await;
        // A refusal of the role ends the connection.
        answer.map_err(|error| match connection.close_reason() {
            Some(reason) => refused(addr, &reason),
            None => error,
        })
    };
    let answer = timeout_at(deadline + GRACE, asking).await;
    let late = || wire::lost(format!("no answer came from the coordinator at {addr}"));
    let mut meeting = answer.map_err(|_| late())??.map_err(RingError::from)?;
    for member in meeting.addrs.iter_mut().filter(|member| member.ip().is_loopback()) {
        // A loopback address is on the coordinator's machine, whose address is known here.
        member.set_ip(addr.ip());
    }
    Ok(meeting)
}

fn refused(addr: SocketAddr, error: &ConnectionError) -> Error {
    let reason = match Close::given_by_peer(error) {
        Some(Close::Expired) => {
            let refusal = JoinRefusal::CertificateExpired;
            return Error::JoinRefused { addr, refusal };
        }
        Some(close) => close.reason().to_owned(),
        None if crate::net::transport::close::is_untrusted(error) => error.to_string(),
        None => return wire::lost(error),
    };
    Error::Refused { addr, reason }
}

/// Connects to the next rank and greets it; tries again until it is there.
async fn connect(
    endpoint: &Endpoint,
    client: &ClientConfig,
    (rank, addr): (u32, SocketAddr),
    hello: &Hello,
) -> Result<(Connection, SendStream)> {
    loop {
        // The name is ignored: the certificate counts.
        let connecting = endpoint.connect_with(client.clone(), addr, "worker");
        match connecting.map_err(wire::lost)?.await {
            Ok(connection) => {
                let greeting = async {
                    let mut send = connection.open_uni().await.map_err(wire::lost)?;
                    rpc::write(&mut send, hello).await?;
                    Ok(send)
                };
                let greeted: Result<SendStream> = greeting.await;
                // The stream shows only that it ended, the connection says why.
                let send = greeted.map_err(|error| match connection.close_reason() {
                    Some(reason) => RingError::of(rank, &reason).into(),
                    None => error,
                })?;
                return Ok((connection, send));
            }
            Err(error) => match RingError::of(rank, &error) {
                RingError::Lost { reason, .. } => {
                    tracing::debug!(rank, %addr, reason, "not there yet");
                    sleep(RETRY_WAIT).await;
                }
                other => return Err(other.into()),
            },
        }
    }
}

/// Waits for the rank before. Other peers are told why they are refused.
async fn accept(
    endpoint: &Endpoint,
    expected: Hello,
    rank: u32,
) -> Result<(Connection, RecvStream)> {
    let mut greetings = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                None => return Err(wire::lost("the endpoint was closed")),
                // Packets with made-up senders must not take the places of others.
                Some(incoming) if incoming.may_retry() => drop(incoming.retry()),
                Some(incoming) if greetings.len() >= GREETINGS_MAX => incoming.refuse(),
                Some(incoming) => {
                    let greeting = greet(incoming, expected.clone(), rank);
                    greetings.spawn(timeout(GREETING_TIMEOUT, greeting));
                }
            },
            Some(greeted) = greetings.join_next() => match greeted {
                Ok(Ok(Ok(greeted))) => return Ok(greeted),
                Ok(Ok(Err(error))) => tracing::warn!(%error, "not the rank before"),
                _ => tracing::warn!("a greeting did not come"),
            },
        }
    }
}

async fn greet(incoming: Incoming, expected: Hello, rank: u32) -> Result<(Connection, RecvStream)> {
    let connection = incoming.await.map_err(wire::lost)?;
    let mut recv = connection.accept_uni().await.map_err(wire::lost)?;
    let hello: Hello = rpc::read(&mut recv).await?;
    if hello == expected {
        return Ok((connection, recv));
    }
    let what = match hello.meeting == expected.meeting {
        true => format!("rank {} of {}", hello.rank, hello.size),
        false => "a rank of another meeting".to_owned(),
    };
    let Hello { rank: before, size, .. } = expected;
    let reason = format!("{what} came where rank {before} of {size} was expected");
    let told = RingError::Ended { by: rank, reason: reason.clone() }.told(rank);
    connection.close(Close::RingBroken.code(), &told);
    Err(wire::lost(reason))
}
