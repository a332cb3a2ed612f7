//! Joiners and coordinators that are not what they say: nothing is given away, nothing is let in.

use crate::clock::now_s;
use crate::net::coordinator::gate::Services;
use crate::net::identity::certificate;
use crate::net::identity::pki;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::identity::tls;
use crate::net::identity::token::{JoinToken, Tokens};
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Ask, Certification, Enrol};
use crate::{Coordinator, CoordinatorConfig, Error, JoinRefusal, Pki, Role, join};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const HOUR: Duration = Duration::from_secs(3600);

async fn coordinator() -> (Coordinator, Pki, Tokens) {
    let pki = Pki::generate().expect("random numbers");
    let tokens = Tokens::open(&pki).expect("new");
    let config = CoordinatorConfig { quic_addr: ANY, ..CoordinatorConfig::default() };
    let services = Services { tokens: Some(tokens.clone()), ..Services::default() };
    let coordinator = Coordinator::start_with(config, &pki, services).await;
    (coordinator.expect("a free port"), pki, tokens)
}

async fn connect(
    addr: SocketAddr,
    tls: quinn::crypto::rustls::QuicClientConfig,
) -> (Endpoint, Connection) {
    let (mut endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(endpoint::config(0, 1));
    endpoint.set_default_client_config(client);
    let connecting = endpoint.connect(addr, COORDINATOR_SAN).expect("a valid address");
    let connection = connecting.await.expect("the handshake works");
    (endpoint, connection)
}

fn request(token: &JoinToken) -> Enrol {
    let (_, csr) = pki::request().expect("random numbers");
    Enrol { secret: token.secret, name: "w".into(), csr, now_s: now_s(), role: Role::Worker }
}

/// A fake coordinator: takes any connection, and notes the bytes that it is sent.
fn fake(
    chain: Vec<CertificateDer<'static>>,
    key: &str,
) -> (SocketAddr, tokio::task::JoinHandle<Vec<u8>>) {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("supported")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they belong together");
    config.alpn_protocols = Protocol::all();
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(config).expect("TLS 1.3");
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(endpoint::config(8, 8));
    let (endpoint, _) = endpoint::bind(ANY, Some(server)).expect("a free port");
    let addr = endpoint.local_addr().expect("bound");
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        let Some(incoming) = endpoint.accept().await else { return received };
        let Ok(connecting) = incoming.accept() else { return received };
        // As early as data can come at all.
        let connection = match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(_) => return received,
        };
        while let Ok((_, mut recv)) = connection.accept_bi().await {
            received.extend(recv.read_to_end(1 << 20).await.unwrap_or_default());
        }
        received
    });
    (addr, received)
}

#[tokio::test]
async fn the_secret_goes_to_no_coordinator_of_another_cluster() {
    let pki = Pki::generate().expect("random numbers");
    let (_, token) = Tokens::open(&pki).expect("new").create(1, HOUR).expect("room");
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let other = Pki::generate().expect("random numbers");
    let (cert, key) = other.issue_coordinator().expect("sound");
    let (rightful, right) = (der(pki.ca_pem()), der(other.ca_pem()));
    // A worker of the right cluster that plays coordinator.
    let worker = pki.issue_worker("w").expect("a name");
    let cases = [
        ("another authority", vec![der(&cert), right.clone()], key.clone()),
        (
            "the right authority's certificate, which is no secret",
            vec![der(&cert), rightful.clone()],
            key.clone(),
        ),
        ("both authorities", vec![der(&cert), right, rightful.clone()], key.clone()),
        ("no authority", vec![der(&cert)], key),
        ("a worker's certificate", vec![der(&worker.cert_pem), rightful], worker.key_pem),
    ];
    for (what, chain, key) in cases {
        let (addr, received) = fake(chain, &key);
        let error = join(addr, &token, &"w".parse().expect("a name")).await.expect_err(what);
        assert!(matches!(error, Error::WrongCluster { .. }), "{what}: {error}");
        let received = tokio::time::timeout(Duration::from_secs(10), received).await;
        assert!(received.expect("it ends").expect("no panic").is_empty(), "{what}");
    }
    // The fake notes what it is sent: with the rightful key it gets the secret.
    let (cert, key) = pki.issue_coordinator().expect("sound");
    let (addr, received) = fake(vec![der(&cert), der(pki.ca_pem())], &key);
    let joining =
        tokio::spawn(async move { join(addr, &token, &"w".parse().expect("a name")).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    joining.abort();
    let received = tokio::time::timeout(Duration::from_secs(10), received).await;
    assert!(!received.expect("it ends").expect("no panic").is_empty());
}

async fn ask_to_join(addr: SocketAddr, token: &JoinToken, bytes: &[u8]) -> (Endpoint, Connection) {
    let tls = tls::joiner(token.authority).expect("sound");
    let (endpoint, connection) = connect(addr, tls).await;
    let (mut send, _recv) = connection.open_bi().await.expect("one stream is allowed");
    send.write_all(bytes).await.expect("still open");
    // The stream stays open: no more bytes come, but the other end cannot know.
    tokio::spawn(async move {
        let _ = send.stopped().await;
    });
    (endpoint, connection)
}

#[tokio::test]
async fn malformed_requests_are_cut_off() {
    let (coordinator, _, tokens) = coordinator().await;
    let (_, token) = tokens.create(1, HOUR).expect("room");
    let framed = |body: &[u8]| {
        let length = u32::try_from(body.len()).expect("short");
        [&length.to_le_bytes()[..], body].concat()
    };
    for (what, bytes) in [
        ("an oversized length", u32::MAX.to_le_bytes().to_vec()),
        ("just too long", framed(&vec![0; (16 << 10) + 1])),
        ("noise", framed(&[255; 100])),
        ("nothing", framed(&[])),
        ("half a secret", framed(&[1; 8])),
    ] {
        let (_endpoint, connection) = ask_to_join(coordinator.quic_addr(), &token, &bytes).await;
        let closed = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
        let closed = closed.unwrap_or_else(|_| panic!("{what}: still open"));
        assert_eq!(Close::given_by_peer(&closed), Some(Close::Malformed), "{what}: {closed}");
    }
    assert_eq!(tokens.list().first().map(|t| t.uses_left), Some(1));
    coordinator.stop().await;
}

#[tokio::test]
async fn requests_that_make_no_sense_cost_no_use() {
    let (coordinator, _, tokens) = coordinator().await;
    let (_, token) = tokens.create(1, HOUR).expect("room");
    let good = || request(&token);
    let mut forged = good().csr;
    if let Some(last) = forged.last_mut() {
        *last ^= 1;
    }
    let cases = [
        (
            Enrol { name: "../up".into(), ..good() },
            JoinRefusal::NameInvalid { name: "../up".into() },
        ),
        (
            Enrol { name: "x".repeat(9000), ..good() },
            JoinRefusal::NameInvalid { name: "x".repeat(64) },
        ),
        (Enrol { csr: vec![0x30; 2000], ..good() }, JoinRefusal::Malformed),
        (Enrol { csr: Vec::new(), ..good() }, JoinRefusal::Malformed),
        // Not signed by the key that it names.
        (Enrol { csr: forged, ..good() }, JoinRefusal::Malformed),
        (Enrol { secret: [0; 16], ..good() }, JoinRefusal::TokenUnknown),
    ];
    for (request, expected) in cases {
        assert_eq!(answer(&coordinator, &token, &request).await.err(), Some(expected));
    }
    for now_s in [0, now_s() - 3600, now_s() + 3600, u64::MAX] {
        let refused = answer(&coordinator, &token, &Enrol { now_s, ..good() }).await.err();
        assert!(matches!(refused, Some(JoinRefusal::Clock { limit_s: 300, .. })), "{refused:?}");
    }
    let certified = answer(&coordinator, &token, &good()).await.expect("a good request");
    // The request's own wishes do not count: name and role are what the coordinator gives.
    let cert = CertificateDer::from_pem_slice(certified.cert_pem.as_bytes()).expect("PEM");
    assert!(certificate::names_worker(&cert, &"w".parse().expect("a name")));
    assert!(
        !certificate::has_role(&cert, Role::Admin) && !certificate::has_role(&cert, Role::Client)
    );
    coordinator.stop().await;
}

async fn answer(coordinator: &Coordinator, token: &JoinToken, request: &Enrol) -> Certification {
    let tls = tls::joiner(token.authority).expect("sound");
    let (_endpoint, connection) = connect(coordinator.quic_addr(), tls).await;
    let (mut send, mut recv) = connection.open_bi().await.expect("one stream is allowed");
    rpc::write(&mut send, request).await.expect("open");
    rpc::read(&mut recv).await.expect("an answer")
}

#[tokio::test]
async fn who_dawdles_is_cut_off_and_keeps_nobody_out() {
    let (coordinator, _, tokens) = coordinator().await;
    let (_, token) = tokens.create(1, HOUR).expect("room");
    let began = Instant::now();
    let mut slow = Vec::new();
    for _ in 0..4 {
        // The beginning of a length, and then nothing.
        slow.push(ask_to_join(coordinator.quic_addr(), &token, &[1]).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // A fifth from the same address is told to wait, and gets in when the slow ones are cut off.
    let name = "w".parse().expect("a name");
    let joined = loop {
        match join(coordinator.quic_addr(), &token, &name).await {
            Ok(joined) => break joined,
            // On a busy machine they are cut off late.
            Err(Error::JoinRefused { refusal: JoinRefusal::Busy, .. })
                if began.elapsed() < Duration::from_secs(30) => {}
            Err(error) => panic!("in the end: {error}"),
        }
    };
    assert_eq!(joined.name, name);
    for (_endpoint, connection) in slow {
        let closed = tokio::time::timeout(Duration::from_secs(8), connection.closed()).await;
        let closed = closed.expect("it is closed");
        assert_eq!(Close::given_by_peer(&closed), Some(Close::Late), "{closed}");
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    coordinator.stop().await;
}

#[tokio::test]
async fn the_unknown_cannot_fill_the_memory() {
    let (coordinator, _, tokens) = coordinator().await;
    let (_, token) = tokens.create(1, HOUR).expect("room");
    let tls = tls::joiner(token.authority).expect("sound");
    let (_endpoint, connection) = connect(coordinator.quic_addr(), tls).await;
    // Streams that are not read take no more than a little.
    let mut taken = 0;
    for _ in 0..4 {
        let Ok((mut send, _recv)) = connection.open_bi().await else { break };
        let chunk = vec![0; 8 << 10];
        while taken < 10 << 20 {
            let written =
                tokio::time::timeout(Duration::from_millis(300), send.write(&chunk)).await;
            match written {
                Ok(Ok(written)) => taken += written,
                _ => break,
            }
        }
    }
    assert!((1..=200 << 10).contains(&taken), "{taken} bytes");
    coordinator.stop().await;
}

#[tokio::test]
async fn without_a_certificate_there_is_no_work() {
    let (coordinator, pki, tokens) = coordinator().await;
    let (_, token) = tokens.create(1, HOUR).expect("room");
    // This peer trusts the coordinator, shows no certificate, and asks for the workers' protocol.
    let mut bare = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .expect("supported")
    .with_root_certificates({
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).expect("PEM"))
            .expect("a root");
        roots
    })
    .with_no_client_auth();
    bare.alpn_protocols = vec![Protocol::Work.alpn()];
    let bare = quinn::crypto::rustls::QuicClientConfig::try_from(bare).expect("TLS 1.3");
    let (_endpoint, connection) = connect(coordinator.quic_addr(), bare).await;
    let closed = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
    assert_eq!(Close::given_by_peer(&closed.expect("it is closed")), Some(Close::Role));
    assert!(coordinator.workers().is_empty());

    // On a joiner's connection, a worker's requests are malformed.
    let request = Ask::Blob { sha256: "00".repeat(32), offset: 0 };
    let body = postcard::to_stdvec(&request).expect("plain");
    let length = u32::try_from(body.len()).expect("short");
    let bytes = [&length.to_le_bytes()[..], &body].concat();
    let (_endpoint, connection) = ask_to_join(coordinator.quic_addr(), &token, &bytes).await;
    let closed = tokio::time::timeout(Duration::from_secs(6), connection.closed()).await;
    let closed = Close::given_by_peer(&closed.expect("it is closed"));
    assert!(matches!(closed, Some(Close::Malformed | Close::Farewell)), "{closed:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_renews_its_own_certificate_and_no_other() {
    let (coordinator, pki, _) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let tls = tls::client(&identity, Protocol::Work).expect("sound");
    let (_endpoint, connection) = connect(coordinator.quic_addr(), tls).await;
    for (name, allowed) in [("w", true), ("v", false)] {
        let (_, csr) = pki::request().expect("random numbers");
        let (mut send, mut recv) = connection.open_bi().await.expect("allowed");
        let request = Ask::Renew { name: name.parse().expect("a name"), csr };
        rpc::write(&mut send, &request).await.expect("open");
        let answer: Certification = rpc::read(&mut recv).await.expect("an answer");
        assert_eq!(answer.is_ok(), allowed, "{name}");
    }
    coordinator.stop().await;
}
