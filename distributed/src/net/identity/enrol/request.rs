//! The joiner's side: it checks whom it talks to, and only then shows its secret.

use super::JoinRefusal;
use crate::clock::now_s;
use crate::error::{Error, Result};
use crate::net::identity::pki::{self, Identity};
use crate::net::identity::role::{COORDINATOR_SAN, Protocol, Role};
use crate::net::identity::tls;
use crate::net::identity::token::JoinToken;
use crate::net::transport::close::{Close, is_untrusted};
use crate::net::transport::coordinators::Coordinators;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Certification, Certified, Enrol};
use crate::net::transport::wire;
use crate::proto::backoff::full_jitter;
use crate::worker_info::WorkerId;
use quinn::{ClientConfig, ConnectError, ConnectionError, Endpoint};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time for the coordinator's answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts at a coordinator where many machines join at once, and the waits between them.
const ATTEMPTS: u32 = 8;
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// Exchanges a token for the identity of a worker, as [`enrol`] does for any role.
///
/// # Errors
/// As [`enrol`].
pub async fn join(
    coordinators: impl Into<Coordinators>,
    token: &JoinToken,
    name: &WorkerId,
) -> Result<Identity> {
    enrol(coordinators, token, Role::Worker, name).await
}

/// Exchanges a token for an identity, at the first coordinator that takes it. The key is made here
/// and goes nowhere; the secret goes only to a coordinator whose authority has the token's hash. A
/// token for another role is refused, and not used up.
///
/// # Errors
/// [`Error::WrongCluster`]; [`Error::JoinRefused`]; [`Error::Unreachable`] when no coordinator answers;
/// [`Error::Connection`] when the answer does not come; [`Error::UnknownHost`]; [`Error::Bind`]; [`Error::Pki`].
pub async fn enrol(
    coordinators: impl Into<Coordinators>,
    token: &JoinToken,
    role: Role,
    name: &WorkerId,
) -> Result<Identity> {
    coordinators.into().ask(|addr| enrol_at(addr, token, role, name)).await
}

async fn enrol_at(
    addr: SocketAddr,
    token: &JoinToken,
    role: Role,
    name: &WorkerId,
) -> Result<Identity> {
    let (mut endpoint, _) = endpoint::bind(endpoint::any_for(addr), None)?;
    let mut client = ClientConfig::new(Arc::new(tls::joiner(token.authority)?));
    client.transport_config(endpoint::config(0, 0));
    endpoint.set_default_client_config(client);
    patiently(&endpoint, addr, || exchange(&endpoint, addr, token, (role, name))).await
}

/// Tries to get a certificate, several times while many others do.
pub(crate) async fn patiently<F: Future<Output = Result<Identity>>>(
    endpoint: &Endpoint,
    addr: SocketAddr,
    exchange: impl Fn() -> F,
) -> Result<Identity> {
    let mut rng = Xoshiro256PlusPlus::from_rng(&mut rand::rng());
    let mut attempt = 1;
    loop {
        let certified = tokio::time::timeout(TIMEOUT, exchange()).await;
        let certified = certified.unwrap_or_else(|_| {
            Err(Error::Connection(format!("no answer from {addr} within {TIMEOUT:?}")))
        });
        let busy = matches!(&certified, Err(Error::JoinRefused { refusal: JoinRefusal::Busy, .. }));
        if !busy || attempt == ATTEMPTS {
            // The coordinator may be gone and never confirm.
            let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
            return certified;
        }
        tokio::time::sleep(full_jitter(attempt, WAIT.0, WAIT.1, &mut rng)).await;
        attempt += 1;
    }
}

async fn exchange(
    endpoint: &Endpoint,
    addr: SocketAddr,
    token: &JoinToken,
    (role, name): (Role, &WorkerId),
) -> Result<Identity> {
    let unreachable = |reason: String| Error::Unreachable { addr, reason };
    let connecting = endpoint.connect(addr, COORDINATOR_SAN).map_err(|error| match error {
        // Such as port 0, to which nothing can be sent.
        ConnectError::InvalidRemoteAddress(_) => unreachable("it is no address to send to".into()),
        other => wire::lost(other),
    })?;
    let connection = connecting.await.map_err(|error| match error {
        ConnectionError::TimedOut => unreachable(error.to_string()),
        _ => failed(addr, token, &error),
    })?;
    let (key, csr) = pki::request()?;
    let request = Enrol { secret: token.secret, name: name.to_string(), csr, now_s: now_s(), role };
    let answer = rpc::ask::<Certification>(&connection, &request).await;
    let answer = answer.map_err(|error| match connection.close_reason() {
        Some(reason) => failed(addr, token, &reason),
        None => error,
    });
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    let answered = answer?.map_err(|refusal| Error::JoinRefused { addr, refusal })?;
    let Certified { cert_pem, ca_pem } = answered;
    let identity = Identity { name: name.clone(), ca_pem, cert_pem, key_pem: key.serialize_pem() };
    if identity.ca_hash()? != token.authority {
        return Err(wrong(addr, token));
    }
    // A useless answer is an error now, not at the first connection.
    tls::client(&identity, Protocol::Work)?;
    Ok(identity)
}

fn wrong(addr: SocketAddr, token: &JoinToken) -> Error {
    Error::WrongCluster { addr, expected: token.authority }
}

fn failed(addr: SocketAddr, token: &JoinToken, error: &ConnectionError) -> Error {
    if Close::given_by_peer(error) == Some(Close::Busy) {
        return Error::JoinRefused { addr, refusal: JoinRefusal::Busy };
    }
    if is_untrusted(error) {
        return wrong(addr, token);
    }
    Error::Connection(format!("{addr}: {error}"))
}
