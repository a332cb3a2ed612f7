//! Peers that begin and do not go on, malformed orders, and processes whose name another one wants:
//! each costs a place for a while, and harms no other peer.

use crate::net::identity::pki;
use crate::net::identity::tls;
use crate::net::tests::{
    ANY, STINT, connect, coordinator, frame, hello, keep_beating, prefix, untouched,
};
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Ask, Certification};
use crate::net::transport::wire;
use crate::proto::message::{Heartbeat, Hello, Kind, VERSION, Welcome};
use crate::{Error, ExecutorStatus, Pki, WorkerConfig, WorkerInfo, run_worker};
use quinn::ServerConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn greetings_that_stall_are_cut_off_and_keep_nobody_out() {
    let (coordinator, pki) = coordinator().await;
    let mut stalled = Vec::new();
    for number in 0..60 {
        let name = format!("slow-{number}");
        let identity = pki.issue_worker(&name).expect("a name");
        let (endpoint, connection) = connect(&coordinator, &identity).await;
        let mut reports = connection.open_uni().await.expect("one stream is allowed");
        // Some say nothing at all, the others more and more of a proper greeting.
        let whole = frame(Kind::Hello, &hello(&name, VERSION));
        let part = whole.get(..number.min(whole.len() - 1)).expect("a part");
        reports.write_all(part).await.expect("still open");
        stalled.push((endpoint, connection, reports));
    }
    let began = Instant::now();
    let identity = pki.issue_worker("w").expect("a name");
    let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    let worker = tokio::spawn(run_worker(config, untouched(), std::future::pending()));
    coordinator.wait_for_workers(1).await.expect("it runs");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    for (_endpoint, connection, _reports) in stalled {
        let closed = tokio::time::timeout(Duration::from_secs(15), connection.closed()).await;
        let closed = closed.expect("it is closed");
        assert_eq!(Close::given_by_peer(&closed), Some(Close::Late), "{closed}");
    }
    assert_eq!(coordinator.workers().len(), 1);
    worker.abort();
    coordinator.stop().await;
}

#[tokio::test]
async fn requests_that_stall_or_are_none_are_dropped() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let (_endpoint, connection) = connect(&coordinator, &identity).await;
    let mut reports = connection.open_uni().await.expect("one stream is allowed");
    reports.write_all(&frame(Kind::Hello, &hello("w", VERSION))).await.expect("still open");
    // Without heartbeats, the worker would be lost before its requests are given up.
    let beats = tokio::spawn(async move {
        let beat = Heartbeat::all(&[], ExecutorStatus::default()).remove(0);
        let beat = frame(Kind::Heartbeat, &beat);
        while reports.write_all(&beat).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    });
    for bytes in [&u32::MAX.to_le_bytes()[..], &[0, 0, 0, 0], &[3, 0, 0, 0, 255, 255, 255]] {
        let (mut send, mut recv) = connection.open_bi().await.expect("allowed");
        send.write_all(bytes).await.expect("still open");
        let answer = recv.read_to_end(100).await.expect("the stream ends");
        assert!(answer.is_empty(), "no answer to {bytes:?}");
    }
    // Each place is taken by the beginning of a length or of a request.
    let mut stalled = Vec::new();
    for bytes in [&[1][..], &[9, 0, 0, 0], &[9, 0, 0, 0, 0], &[0]] {
        let (mut send, recv) = connection.open_bi().await.expect("allowed");
        send.write_all(bytes).await.expect("still open");
        stalled.push((send, recv));
    }
    let next = tokio::time::timeout(Duration::from_millis(500), connection.open_bi()).await;
    assert!(next.is_err(), "there are four places");
    for (send, _recv) in stalled {
        // The rest is not waited for. A peer that keeps the stream keeps its own place taken.
        let stopped = tokio::time::timeout(Duration::from_secs(15), send.stopped()).await;
        stopped.expect("it is stopped").expect("the connection bears it");
    }
    let open = tokio::time::timeout(Duration::from_secs(5), connection.open_bi()).await;
    let (mut send, mut recv) = open.expect("a place comes free").expect("the connection bears it");
    let (_, csr) = pki::request().expect("random numbers");
    let request = Ask::Renew { name: "w".parse().expect("a name"), csr };
    rpc::write(&mut send, &request).await.expect("open");
    let answer: Certification = rpc::read(&mut recv).await.expect("an answer");
    assert!(answer.is_ok());
    beats.abort();
    coordinator.stop().await;
}

#[tokio::test]
async fn orders_that_are_none_close_the_connection_and_the_worker_comes_back() {
    let pki = Pki::generate().expect("random numbers");
    let mut server = ServerConfig::with_crypto(Arc::new(tls::server(&pki).expect("valid")));
    server.transport_config(endpoint::config(0, 1));
    let (endpoint, _) = endpoint::bind(ANY, Some(server)).expect("a free port");
    let addr = endpoint.local_addr().expect("bound");
    let config = WorkerConfig::new(addr, pki.issue_worker("w").expect("a name"), 1);
    let worker = tokio::spawn(run_worker(config, untouched(), std::future::pending()));
    for order in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        prefix(Kind::Load, u32::MAX, u32::MAX),
        prefix(Kind::Load, 64 << 20, 0),
        prefix(Kind::Drain, 10, 5),
    ] {
        let connection = endpoint.accept().await.expect("it comes").await.expect("trusted");
        let mut reports = connection.accept_uni().await.expect("reports");
        let _: Hello = wire::expect_report(&mut reports, Kind::Hello, "hello").await.expect("one");
        let mut control = connection.open_uni().await.expect("allowed");
        let welcome =
            Welcome { version: VERSION, epoch: 1, heartbeat_ms: 500, link: None, stint: STINT };
        wire::write_report(&mut control, Kind::Welcome, &welcome).await.expect("open");
        control.write_all(&order).await.expect("open");
        let closed = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
        let closed = closed.unwrap_or_else(|_| panic!("{order:?}: still open"));
        assert_eq!(Close::given_by_peer(&closed), Some(Close::Malformed), "{order:?}: {closed}");
    }
    worker.abort();
}

/// The clock was set back, so that the earlier process seems to be the later one.
#[tokio::test]
async fn a_name_is_waited_for_while_its_last_process_may_be_gone() {
    for stays in [false, true] {
        let (coordinator, pki) = coordinator().await;
        let identity = pki.issue_worker("w").expect("a name");
        let (_endpoint, connection) = connect(&coordinator, &identity).await;
        let mut reports = connection.open_uni().await.expect("open");
        let later = Hello { incarnation: u64::MAX, ..hello("w", VERSION) };
        reports.write_all(&frame(Kind::Hello, &later)).await.expect("sent");
        coordinator.wait_for_workers(1).await.expect("it runs");
        let silent = match stays {
            true => {
                keep_beating(reports);
                None
            }
            false => Some(reports),
        };
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
        let mut worker = tokio::spawn(run_worker(config, untouched(), std::future::pending()));
        let ended = tokio::time::timeout(Duration::from_secs(15), async {
            loop {
                let own = |info: &WorkerInfo| info.pid == Some(std::process::id());
                tokio::select! {
                    ended = &mut worker => return Some(ended.expect("no panic")),
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
                if coordinator.workers().iter().any(own) {
                    return None;
                }
            }
        });
        let ended = ended.await.expect("it is decided in time");
        match stays {
            true => assert!(matches!(ended, Some(Err(Error::Refused { .. }))), "{ended:?}"),
            false => assert!(ended.is_none(), "{ended:?}"),
        }
        drop(silent);
        worker.abort();
        coordinator.stop().await;
    }
}
