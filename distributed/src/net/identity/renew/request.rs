//! The member's side: it shows its certificate, proves that it has the key, and gets another one.

use crate::error::{Error, Result};
use crate::net::identity::enrol::{JoinRefusal, patiently};
use crate::net::identity::pki::{self, Identity};
use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::identity::tls;
use crate::net::transport::close::{Close, final_error};
use crate::net::transport::coordinators::Coordinators;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Certification, Certified, Renewal};
use crate::net::transport::wire;
use quinn::{ClientConfig, ConnectError, ConnectionError, Endpoint};
use rcgen::KeyPair;
use std::net::SocketAddr;
use std::sync::Arc;

/// Renews an identity: same role and name, valid from now. The certificate must be valid, or have
/// expired no longer ago than [`Pki::with_absence_max`](crate::Pki::with_absence_max) allows. The
/// key is made here and goes nowhere. Workers do this by themselves; clients and administrators who
/// were away do it before [`Client::connect`](crate::Client::connect), and keep the result.
///
/// # Errors
/// [`Error::JoinRefused`] where the certificate was revoked or expired longer ago, and then a token
/// is needed to [`enrol`](crate::enrol) anew, or where the clocks differ too much;
/// [`Error::Refused`] where either side does not trust the other; [`Error::Unreachable`] when no
/// coordinator answers; [`Error::Connection`] when the answer does not come;
/// [`Error::UnknownHost`]; [`Error::Bind`]; [`Error::Pki`].
pub async fn renew(coordinators: impl Into<Coordinators>, identity: &Identity) -> Result<Identity> {
    coordinators.into().ask(|addr| renew_at(addr, identity)).await
}

async fn renew_at(addr: SocketAddr, identity: &Identity) -> Result<Identity> {
    let (endpoint, _) = endpoint::bind(endpoint::any_for(addr), None)?;
    patiently(&endpoint, addr, || once(&endpoint, addr, identity)).await
}

/// The same over an existing endpoint, tried once. It may take as long as the connection lives.
pub(super) async fn once(
    endpoint: &Endpoint,
    addr: SocketAddr,
    identity: &Identity,
) -> Result<Identity> {
    let until = identity.validity()?.1;
    let failed = |error: &ConnectionError| match error {
        ConnectionError::TimedOut => Error::Unreachable { addr, reason: error.to_string() },
        error if Close::given_by_peer(error) == Some(Close::Busy) => {
            Error::JoinRefused { addr, refusal: JoinRefusal::Busy }
        }
        error => final_error(addr, error, until)
            .unwrap_or_else(|| Error::Connection(format!("{addr}: {error}"))),
    };
    let mut client = ClientConfig::new(Arc::new(tls::client(identity, Protocol::Renew)?));
    client.transport_config(endpoint::config(0, 0));
    let connecting =
        endpoint.connect_with(client, addr, COORDINATOR_SAN).map_err(|error| match error {
            ConnectError::InvalidRemoteAddress(_) => {
                Error::Unreachable { addr, reason: "it is no address to send to".into() }
            }
            other => wire::lost(other),
        })?;
    let connection = connecting.await.map_err(|error| failed(&error))?;
    let (key, csr) = pki::request()?;
    let answer = rpc::ask::<Certification>(&connection, &Renewal { csr }).await;
    let answer = answer.map_err(|error| match connection.close_reason() {
        Some(reason) => failed(&reason),
        None => error,
    });
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    let certified = answer?.map_err(|refusal| Error::JoinRefused { addr, refusal })?;
    renewed(identity, certified, &key)
}

/// The identity that follows another one. A useless answer is an error now, not at the next
/// connection.
pub(crate) fn renewed(old: &Identity, certified: Certified, key: &KeyPair) -> Result<Identity> {
    let Certified { cert_pem, ca_pem: _ } = certified;
    let new = Identity { cert_pem, key_pem: key.serialize_pem(), ..old.clone() };
    tls::client(&new, Protocol::Work)?;
    Ok(new)
}
