//! Machines that join with tokens, renew their certificates, and come back.

use crate::common::{Echo, Worker, config, eventually, task};
use lgp_distributed::{
    Coordinator, Error, Identity, JoinRefusal, JoinToken, Pki, Role, Services, TaskState, Tokens,
    WorkerConfig, WorkerId, join,
};
use std::path::Path;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

async fn coordinator(pki: &Pki, tokens: &Tokens) -> Coordinator {
    let services = Services {
        tokens: Some(tokens.clone()),
        reserved_prefix: Some("local-".into()),
        ..Services::default()
    };
    Coordinator::start_with(config(), pki, services).await.unwrap()
}

/// A coordinator whose tokens live in memory.
async fn cluster() -> (Coordinator, Pki, Tokens) {
    let pki = Pki::generate().unwrap();
    let tokens = Tokens::open(&pki).expect("new");
    (coordinator(&pki, &tokens).await, pki, tokens)
}

fn name(text: &str) -> WorkerId {
    text.parse().unwrap()
}

fn token(tokens: &Tokens, uses: u32) -> JoinToken {
    tokens.create(uses, HOUR).unwrap().1
}

async fn refusal(coordinator: &Coordinator, token: &JoinToken, as_name: &str) -> JoinRefusal {
    match join(coordinator.quic_addr(), token, &name(as_name)).await {
        Err(Error::JoinRefused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_joins_with_a_token_and_works() {
    let (coordinator, _, tokens) = cluster().await;
    let identity = join(coordinator.quic_addr(), &token(&tokens, 1), &name("far")).await.unwrap();
    assert_eq!(identity.name.as_str(), "far");
    let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    let worker = Worker::with(config, &Echo::open());
    let record = coordinator.run(task("echo")).await.unwrap();
    assert_eq!((record.state, record.worker.unwrap().as_str()), (TaskState::Succeeded, "far"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_in_as_many_as_it_says() {
    let (coordinator, _, tokens) = cluster().await;
    let twice = token(&tokens, 2);
    for as_name in ["a", "b"] {
        join(coordinator.quic_addr(), &twice, &name(as_name)).await.unwrap();
    }
    assert_eq!(refusal(&coordinator, &twice, "c").await, JoinRefusal::TokenUsedUp);
    let (info, revoked) = tokens.create(1, HOUR).unwrap();
    tokens.revoke(&info.id).unwrap();
    assert_eq!(refusal(&coordinator, &revoked, "c").await, JoinRefusal::TokenUnknown);
    let (_, brief) = tokens.create(1, Duration::from_secs(1)).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(refusal(&coordinator, &brief, "c").await, JoinRefusal::TokenExpired);
    // Of ten machines that race for one use, one gets it.
    let once = token(&tokens, 1);
    let addr = coordinator.quic_addr();
    let racers: Vec<_> = (0..10)
        .map(|n| {
            let once = once.clone();
            tokio::spawn(async move { join(addr, &once, &name(&format!("racer-{n}"))).await })
        })
        .collect();
    let mut joined = 0;
    for racer in racers {
        joined += u32::from(racer.await.unwrap().is_ok());
    }
    assert_eq!(joined, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_unique_among_the_living() {
    let (coordinator, pki, tokens) = cluster().await;
    let _live = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let once = token(&tokens, 1);
    for taken in ["w1", "local-7"] {
        let expected = JoinRefusal::NameTaken { name: taken.into() };
        assert_eq!(refusal(&coordinator, &once, taken).await, expected);
    }
    // The refusals used up nothing.
    join(coordinator.quic_addr(), &once, &name("w2")).await.unwrap();
    // A machine that was admitted and has not connected yet counts too.
    let again = token(&tokens, 1);
    let expected = JoinRefusal::NameTaken { name: "w2".into() };
    assert_eq!(refusal(&coordinator, &again, "w2").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_cluster_is_shown_to_nobody() {
    let (coordinator, _, _) = cluster().await;
    let (_, _, foreign) = cluster().await;
    let (_, token) = foreign.create(1, HOUR).unwrap();
    let error = join(coordinator.quic_addr(), &token, &name("w")).await.expect_err("foreign");
    assert!(matches!(error, Error::WrongCluster { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_without_tokens_lets_nobody_join() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let token = token(&Tokens::open(&pki).unwrap(), 1);
    assert_eq!(refusal(&coordinator, &token, "w").await, JoinRefusal::Unavailable);
}

fn kept(data: &Path) -> (Pki, Tokens) {
    let pki = Pki::open(&data.join("pki")).unwrap();
    let tokens = Tokens::open(&pki).unwrap();
    (pki, tokens)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_coordinator_is_recognised_and_remembers_what_was_used() {
    let data = tempfile::tempdir().unwrap();
    let (pki, tokens) = kept(data.path());
    let first = coordinator(&pki, &tokens).await;
    let (used, open) = (token(&tokens, 1), token(&tokens, 1));
    let identity = join(first.quic_addr(), &used, &name("w")).await.unwrap();
    identity.save(&data.path().join("identity")).unwrap();
    first.stop().await;

    let (pki, tokens) = kept(data.path());
    let second = coordinator(&pki, &tokens).await;
    assert_eq!(refusal(&second, &used, "v").await, JoinRefusal::TokenUsedUp);
    join(second.quic_addr(), &open, &name("v")).await.unwrap();
    let identity = Identity::load(&data.path().join("identity")).unwrap().unwrap();
    let config = WorkerConfig::new(second.quic_addr(), identity, 1);
    let _worker = Worker::with(config, &Echo::open());
    second.wait_for_workers(1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_in_time_and_kept() {
    let data = tempfile::tempdir().unwrap();
    let pki = Pki::generate().unwrap().with_certificate_life(Duration::from_secs(3));
    let tokens = Tokens::open(&pki).expect("new");
    let coordinator = coordinator(&pki, &tokens).await;
    let identity = join(coordinator.quic_addr(), &token(&tokens, 1), &name("w")).await.unwrap();
    let first = identity.clone();
    let config = WorkerConfig {
        keep_in: Some(data.path().join("identity")),
        ..WorkerConfig::new(coordinator.quic_addr(), identity, 1)
    };
    let worker = Worker::with(config, &Echo::open());
    let renewed = eventually("a renewal", || {
        let kept = Identity::load(&data.path().join("identity")).unwrap()?;
        (kept.cert_pem != first.cert_pem).then_some(kept)
    })
    .await;
    assert_ne!(renewed.key_pem, first.key_pem, "a new key, too");
    assert_eq!(renewed.name, first.name);
    // The connection and the worker outlive the first certificate.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(coordinator.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_roles_are_no_workers() {
    let (coordinator, pki, _) = cluster().await;
    for role in [Role::Client, Role::Admin] {
        let identity = pki.issue(role, "w").unwrap();
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
        let error = Worker::with(config, &Echo::open()).ended().await.expect_err("no worker");
        assert!(error.to_string().contains("role"), "{role:?}: {error}");
        assert!(coordinator.workers().is_empty());
    }
}
