//! Certificates whose time is over or yet to come: what they allow, and what not.

use crate::net::identity::certificate;
use crate::net::identity::pki;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::identity::tls;
use crate::net::tests::ANY;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Ask, Certification, Renewal};
use crate::{Coordinator, CoordinatorConfig, Error, Identity, JoinRefusal, Pki, Role, renew};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const LIFE: Duration = Duration::from_secs(2);

async fn coordinator(pki: &Pki) -> Coordinator {
    let config = CoordinatorConfig { quic_addr: ANY, ..CoordinatorConfig::default() };
    Coordinator::start(config, pki).await.expect("a free port")
}

/// Connects as a peer of any protocol; a refusal comes now or as the connection's end.
async fn connect(
    coordinator: &Coordinator,
    identity: &Identity,
    protocol: Protocol,
) -> Result<(Endpoint, Connection), ConnectionError> {
    let (endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let mut client = ClientConfig::new(Arc::new(tls::client(identity, protocol).expect("sound")));
    client.transport_config(endpoint::config(0, 1));
    let connecting = endpoint.connect_with(client, coordinator.quic_addr(), COORDINATOR_SAN);
    let connection = connecting.expect("an address").await?;
    Ok((endpoint, connection))
}

async fn end_of(connection: &Connection) -> Option<Close> {
    let closed = tokio::time::timeout(Duration::from_secs(8), connection.closed()).await;
    Close::given_by_peer(&closed.expect("it is closed"))
}

fn renewal() -> Renewal {
    Renewal { csr: pki::request().expect("random numbers").1 }
}

fn refusal(error: &Error) -> Option<&JoinRefusal> {
    let Error::JoinRefused { refusal, .. } = error else { return None };
    Some(refusal)
}

#[tokio::test]
async fn what_has_expired_opens_renewal_and_nothing_else() {
    let pki = Pki::generate().expect("random numbers").with_certificate_life(LIFE);
    let coordinator = coordinator(&pki).await;
    let expired = Role::ALL.map(|role| (role, pki.issue(role, "x").expect("a name")));
    tokio::time::sleep(LIFE + Duration::from_millis(100)).await;
    for (role, identity) in &expired {
        for protocol in [Protocol::Work, Protocol::Ring, Protocol::Call, Protocol::Join] {
            let opened = connect(&coordinator, identity, protocol).await;
            let (_endpoint, connection) = opened.expect("the handshake works");
            let open = protocol.is_open_to(Some(*role));
            let expected = if open { Close::Expired } else { Close::Role };
            assert_eq!(end_of(&connection).await, Some(expected), "{role} {protocol:?}");
        }
        let opened = connect(&coordinator, identity, Protocol::Renew).await;
        let (_endpoint, connection) = opened.expect("the handshake works");
        let answer: Certification = rpc::ask(&connection, &renewal()).await.expect("an answer");
        let certified = answer.expect("it is renewed");
        // One request for each connection, and only of this kind.
        assert!(rpc::ask::<Certification>(&connection, &renewal()).await.is_err());
        let cert = CertificateDer::from_pem_slice(certified.cert_pem.as_bytes()).expect("PEM");
        for other in Role::ALL {
            assert_eq!(
                certificate::has_role(&cert, other),
                other == *role,
                "{role} becomes {other}"
            );
        }
        assert_eq!(certificate::Member::of(&cert).map(|member| member.name), "x".parse().ok());
    }
    let (_, identity) = expired.first().expect("a role");
    let opened = connect(&coordinator, identity, Protocol::Renew).await;
    let (_endpoint, connection) = opened.expect("the handshake works");
    let other = Ask::Blob { sha256: "00".repeat(32), offset: 0 };
    let answer: Certification = rpc::ask(&connection, &other).await.expect("an answer");
    assert_eq!(answer.err(), Some(JoinRefusal::Malformed), "it asks for a model");
    coordinator.stop().await;
}

#[tokio::test]
async fn what_is_yet_to_come_or_long_over_opens_nothing() {
    let own = Pki::generate().expect("random numbers");
    let strict = own.clone().with_absence_max(Duration::from_secs(10));
    let coordinator = coordinator(&strict).await;
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    let made_at = |pki: &Pki, at| pki.issue_at(Role::Worker, "w", at).expect("a name");
    let brief = own.clone().with_certificate_life(LIFE);
    let other = Pki::generate().expect("random numbers");
    let foreign = Identity { ca_pem: own.ca_pem().to_owned(), ..made_at(&other, now) };
    let cases = [
        ("yet to come", made_at(&own, now + hour), Some(JoinRefusal::ClocksDiffer)),
        ("long over", made_at(&brief, now - hour), Some(JoinRefusal::CertificateLapsed)),
        ("of another cluster", foreign, None),
    ];
    for (what, identity, expected) in cases {
        for protocol in [Protocol::Work, Protocol::Renew] {
            let error = match connect(&coordinator, &identity, protocol).await {
                Ok((_endpoint, connection)) => connection.closed().await,
                Err(error) => error,
            };
            assert_eq!(Close::given_by_peer(&error), None, "{what}: no handshake, {error}");
        }
        let error = renew(coordinator.quic_addr(), &identity).await.expect_err(what);
        assert_eq!(refusal(&error), expected.as_ref(), "{what}: {error}");
        assert!(expected.is_some() || matches!(error, Error::Refused { .. }), "{what}: {error}");
    }
    // A certificate that has just expired still passes the handshake.
    let just = made_at(&brief, now - LIFE - Duration::from_secs(3));
    renew(coordinator.quic_addr(), &just).await.expect("it is not lapsed yet");
    coordinator.stop().await;
}

#[tokio::test]
async fn who_dawdles_over_a_renewal_is_cut_off_and_keeps_nobody_out() {
    let pki = Pki::generate().expect("random numbers");
    let coordinator = coordinator(&pki).await;
    let identity = pki.issue_worker("w").expect("a name");
    let mut slow = Vec::new();
    for _ in 0..16 {
        let opened = connect(&coordinator, &identity, Protocol::Renew).await;
        slow.push(opened.expect("the handshake works"));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let opened = connect(&coordinator, &identity, Protocol::Renew).await;
    let (_endpoint, connection) = opened.expect("the handshake works");
    assert_eq!(end_of(&connection).await, Some(Close::Busy), "too many from one address");
    for (_endpoint, connection) in &slow {
        assert_eq!(end_of(connection).await, Some(Close::Late));
    }
    renew(coordinator.quic_addr(), &identity).await.expect("there is room again");
    coordinator.stop().await;
}
