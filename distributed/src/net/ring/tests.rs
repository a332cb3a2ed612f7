//! How long a rank waits for others that come late and then do not take part.

use super::{Ring, RingConfig, RingError, RingPeers};
use crate::Error;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::identity::tls;
use crate::net::tests::{ANY, coordinator};
use crate::net::transport::endpoint;
use crate::net::transport::rpc;
use crate::proto::rendezvous::{Claim, Meeting, MeetingRefusal};
use quinn::ClientConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_rank_that_comes_late_and_stays_silent_costs_no_second_wait() {
    let (coordinator, pki) = coordinator().await;
    let addr = coordinator.quic_addr();
    let patience = Duration::from_secs(4);
    let identity = pki.issue_worker("w0").expect("a name");
    let peers = RingPeers::Coordinator(addr);
    let config =
        RingConfig { timeout: patience, ..RingConfig::new(identity, "late", (0, 2), peers) };
    let began = Instant::now();
    let joining = tokio::spawn(Ring::join(config));

    // After three quarters of its time the other rank meets it, and then neither comes nor listens.
    tokio::time::sleep(patience * 3 / 4).await;
    let identity = pki.issue_worker("w1").expect("a name");
    let (endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let tls = tls::client(&identity, Protocol::Ring).expect("sound");
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(endpoint::config(0, 0));
    let connecting = endpoint.connect_with(client, addr, COORDINATOR_SAN).expect("an address");
    let connection = connecting.await.expect("trusted");
    let (mut send, mut recv) = connection.open_bi().await.expect("allowed");
    let claim = Claim { group: "late".into(), rank: 1, size: 2, patience_ms: 1000 };
    rpc::write(&mut send, &claim).await.expect("open");
    let met: Result<Meeting, MeetingRefusal> = rpc::read(&mut recv).await.expect("an answer");
    assert_eq!(met.expect("both are there").addrs.len(), 2);

    let error = joining.await.expect("no panic").expect_err("nobody takes part");
    assert!(matches!(error, Error::Ring(RingError::Absent { rank: 1, .. })), "{error}");
    // A quarter of the time and the grace, not as long again.
    assert!(began.elapsed() < patience * 3 / 2, "{:?}", began.elapsed());
    coordinator.stop().await;
}
