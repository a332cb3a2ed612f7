//! Every pair of a role and a call, and callers that misbehave.

use super::{Answer, Call, Told};
use crate::net::call::answer::Refusal;
use crate::net::identity::pki;
use crate::net::identity::role::{COORDINATOR_SAN, Protocol, Role};
use crate::net::identity::tls;
use crate::net::tests::{ANY, coordinator};
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::rpc;
use crate::proto::tensors::describe_any;
use crate::task::{ModelRef, TaskId, TaskSpec};
use crate::{Client, Coordinator, Error, Identity};
use lgp_memory::{DType, NamedTensor, Tensor};
use quinn::{ClientConfig, Connection, Endpoint};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects as a client would, with a given protocol.
async fn connect(
    coordinator: &Coordinator,
    identity: &Identity,
    protocol: Protocol,
) -> (Endpoint, Connection) {
    let (endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let mut client = ClientConfig::new(Arc::new(tls::client(identity, protocol).expect("sound")));
    client.transport_config(endpoint::config(0, 0));
    let connecting = endpoint.connect_with(client, coordinator.quic_addr(), COORDINATOR_SAN);
    let connection = connecting.expect("an address").await.expect("the handshake works");
    (endpoint, connection)
}

fn task(elements: usize) -> TaskSpec {
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    let x = Tensor::zeros(DType::U8, [elements]).expect("small");
    TaskSpec::new(model, vec![NamedTensor::new("x", x)])
}

fn spec(elements: usize) -> Box<super::Spec> {
    let task = task(elements);
    let (metas, _) = describe_any(&task.inputs).expect("small");
    Box::new(super::Spec::of(task, metas))
}

/// Each call. The calls that a client may make end, whatever the cluster has.
fn calls() -> Vec<Call> {
    let (_, csr) = pki::request().expect("random numbers");
    let id = TaskId { epoch: 1, seq: 1 };
    let (role, uses, ttl) = (Role::Worker, 1, Duration::from_secs(60));
    vec![
        Call::Greet,
        Call::Renew { csr },
        Call::Models,
        Call::Submit(spec(0)),
        Call::Wait(id),
        Call::Task(id),
        Call::Cancel(id),
        Call::Workers,
        Call::Stats,
        Call::ShutdownWorker("w".into()),
        Call::Scale(1),
        Call::CreateToken { role, uses, ttl },
        Call::Revoke { role, name: "nobody".parse().expect("a name") },
        // No task is accepted after it.
        Call::Drain,
        Call::Run(spec(0)),
    ]
}

async fn ask_for(connection: &Connection, call: &Call) -> Answer {
    let (mut send, mut recv) = connection.open_bi().await.expect("open");
    rpc::write(&mut send, call).await.expect("open");
    send.finish().expect("open");
    rpc::read(&mut recv).await.expect("an answer")
}

#[tokio::test]
async fn a_role_may_do_what_it_may_and_nothing_else() {
    for role in [Role::Client, Role::Admin] {
        let (coordinator, pki) = coordinator().await;
        let identity = pki.issue(role, "x").expect("a name");
        let (_endpoint, connection) = connect(&coordinator, &identity, Protocol::Call).await;
        for call in calls() {
            let (name, needs) = call.needs();
            // No worker runs a client's task; a refusal would come at once.
            let waits = matches!((&call, role), (Call::Run(_), Role::Client));
            let patience = Duration::from_millis(if waits { 500 } else { 5_000 });
            let answer = tokio::time::timeout(patience, ask_for(&connection, &call)).await;
            let answer = answer.unwrap_or_else(|_| {
                assert!(waits || matches!(call, Call::Drain), "{role} {name}: no answer");
                Ok(Told::Done)
            });
            let refused = matches!(&answer, Err(Refusal::Role { needs: n, .. }) if *n == needs);
            assert_eq!(refused, !role.may(needs), "{role} {name}");
            if matches!(call, Call::Submit(_)) {
                assert!(matches!(answer, Ok(Told::Task(_))), "{role} may submit");
            }
        }
        // No other protocol is open to either role, except that of joiners.
        for protocol in [Protocol::Work, Protocol::Ring] {
            let (_endpoint, connection) = connect(&coordinator, &identity, protocol).await;
            let closed = Close::given_by_peer(&connection.closed().await);
            assert_eq!(closed, Some(Close::Role), "{role} {protocol:?}");
        }
        coordinator.stop().await;
    }
    assert!(calls().iter().any(|call| call.needs().1 == Role::Admin));
}

#[tokio::test]
async fn a_worker_calls_for_nothing() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    for call in calls() {
        let (_endpoint, connection) = connect(&coordinator, &identity, Protocol::Call).await;
        if let Ok((mut send, _recv)) = connection.open_bi().await {
            // It may be closed already.
            let _ = rpc::write(&mut send, &call).await;
        }
        let closed = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
        let closed = Close::given_by_peer(&closed.expect("it is closed"));
        assert_eq!(closed, Some(Close::Role), "{}", call.needs().0);
    }
    assert_eq!(coordinator.stats().tasks.submitted, 0);
    let error = Client::connect(coordinator.quic_addr(), &identity).await.expect_err("a worker");
    assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("role")), "{error}");
    coordinator.stop().await;
}

#[tokio::test]
async fn calls_that_are_none_or_stall_are_dropped_and_keep_nobody_waiting() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue(Role::Client, "c").expect("a name");
    let (_endpoint, connection) = connect(&coordinator, &identity, Protocol::Call).await;
    for bytes in [&u32::MAX.to_le_bytes()[..], &[0, 0, 0, 0], &[3, 0, 0, 0, 255, 255, 255]] {
        let (mut send, mut recv) = connection.open_bi().await.expect("allowed");
        send.write_all(bytes).await.expect("still open");
        let answer = recv.read_to_end(100).await.expect("the stream ends");
        assert!(answer.is_empty(), "no answer to {bytes:?}");
    }
    // Inputs that are announced and do not come take only what one caller may have: others go on.
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let (mut send, recv) = connection.open_bi().await.expect("allowed");
        let call = Call::Submit(spec(40 << 20));
        rpc::write(&mut send, &call).await.expect("open");
        send.write_all(&[0; 1000]).await.expect("open");
        stalled.push((send, recv));
    }
    let began = Instant::now();
    // The same member has no more room, and hears that before its stalled calls are dropped.
    let client = Client::connect(coordinator.quic_addr(), &identity).await.expect("a place");
    let full = client.submit(task(40 << 20)).await;
    assert!(matches!(full, Err(Error::Overloaded { .. })), "{full:?}");
    let other = pki.issue(Role::Client, "d").expect("a name");
    let client = Client::connect(coordinator.quic_addr(), &other).await.expect("a client");
    client.submit(task(40 << 20)).await.expect("there is room for others");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // A call with more than a body is not even begun.
    assert!(matches!(client.submit(task((64 << 20) + 1)).await, Err(Error::Frame(_))));
    let refused = ask_for(&connection, &Call::Submit(spec((64 << 20) + 1))).await;
    assert!(matches!(refused, Err(Refusal::Other { .. })));
    // A call that stalls after its beginning is dropped.
    let (mut send, _recv) = connection.open_bi().await.expect("allowed");
    send.write_all(&[9, 0, 0, 0]).await.expect("open");
    let stopped = tokio::time::timeout(Duration::from_secs(15), send.stopped()).await;
    stopped.expect("nobody waits for the rest").expect("the connection bears it");
    assert!(connection.close_reason().is_none());
    coordinator.stop().await;
}

#[tokio::test]
async fn clients_that_take_every_place_do_not_keep_administrators_out() {
    let (coordinator, pki) = coordinator().await;
    let addr = coordinator.quic_addr();
    let issue = |role, name: &str| pki.issue(role, name).expect("a name");
    let late = issue(Role::Client, "late");
    let (endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let mut places = Vec::new();
    for number in 0..16 {
        let identity = issue(Role::Client, &format!("c{number}"));
        let tls = Arc::new(tls::client(&identity, Protocol::Call).expect("sound"));
        for _ in 0..16 {
            let mut config = ClientConfig::new(Arc::clone(&tls) as _);
            config.transport_config(endpoint::config(0, 0));
            let connecting = endpoint.connect_with(config, addr, COORDINATOR_SAN);
            let connection = connecting.expect("an address").await.expect("trusted");
            assert!(ask_for(&connection, &Call::Greet).await.is_ok());
            places.push(connection);
        }
        if number == 0 {
            // One member has no more places, but others have.
            let error = Client::connect(addr, &identity).await.expect_err("no place for it");
            assert!(error.to_string().contains("too many"), "{error}");
            Client::connect(addr, &late).await.expect("a place for others");
        }
    }
    let error = Client::connect(addr, &late).await.expect_err("no place");
    assert!(error.to_string().contains("too many"), "{error}");
    Client::connect(addr, &issue(Role::Admin, "x")).await.expect("a place of their own");
    // A place that becomes free is given to the next caller.
    drop(places.pop());
    let began = Instant::now();
    while Client::connect(addr, &late).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "no place comes free");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tasks_of_one_client_wait_for_one_another_and_calls_do_not() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue(Role::Client, "c").expect("a name");
    let client = Client::connect(coordinator.quic_addr(), &identity).await.expect("a client");
    let large = (0..6).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.submit(task(32 << 20)).await })
    });
    let large: Vec<_> = large.collect();
    let began = Instant::now();
    let mut calls = 0;
    while !large.iter().all(tokio::task::JoinHandle::is_finished) {
        let answer = tokio::time::timeout(Duration::from_secs(5), client.models()).await;
        answer.expect("a small call is answered meanwhile").expect("it is allowed");
        calls += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "they block one another");
    }
    println!("{calls} small calls while six large tasks came in {:?}", began.elapsed());
    for task in large {
        task.await.expect("no panic").expect("there was room");
    }
    coordinator.stop().await;
}
