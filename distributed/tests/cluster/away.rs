//! Members that were away while their certificates expired: which ones come back by themselves, and
//! which do not.

use crate::common::{Echo, Worker, config, eventually, task};
use lgp_distributed::{
    Client, Coordinator, Error, Identity, JoinRefusal, Pki, Role, TaskState, WorkerConfig, renew,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// An authority whose certificates last two seconds, and its coordinator.
async fn cluster(absence_max: Duration) -> (Coordinator, Pki) {
    let pki = Pki::generate().unwrap();
    let pki = pki.with_certificate_life(2 * SECOND).with_absence_max(absence_max);
    (Coordinator::start(config(), &pki).await.unwrap(), pki)
}

async fn until_expired(identity: &Identity) {
    let until = identity.validity().unwrap().1;
    tokio::time::sleep(until.elapsed().map_or_else(|e| e.duration(), |_| Duration::ZERO)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn refusal(error: &Error) -> Option<&JoinRefusal> {
    let Error::JoinRefused { refusal, .. } = error else { return None };
    Some(refusal)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_certificate_has_expired_renews_it_and_works() {
    let folder = tempfile::tempdir().unwrap();
    let (coordinator, pki) = cluster(60 * SECOND).await;
    let old = pki.issue_worker("w").unwrap();
    until_expired(&old).await;
    let config = WorkerConfig {
        keep_in: Some(folder.path().join("identity")),
        ..WorkerConfig::new(coordinator.quic_addr(), old.clone(), 1)
    };
    let worker = Worker::with(config, &Echo::open());
    let record = coordinator.run(task("echo")).await.unwrap();
    assert_eq!((record.state, record.worker.unwrap().as_str()), (TaskState::Succeeded, "w"));
    let kept = Identity::load(&folder.path().join("identity")).unwrap().unwrap();
    assert_eq!(kept.name, old.name);
    assert!(kept.key_pem != old.key_pem && kept.validity().unwrap().0 > old.validity().unwrap().0);
    worker.stop().await.unwrap();
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_too_long_is_told_to_join_anew() {
    let (coordinator, pki) = cluster(SECOND).await;
    let worker = pki.issue_worker("w").unwrap();
    let client = pki.issue(Role::Client, "c").unwrap();
    until_expired(&client).await;
    tokio::time::sleep(3 * SECOND).await;
    let config = WorkerConfig::new(coordinator.quic_addr(), worker, 1);
    let error = Worker::with(config, &Echo::open()).ended().await.expect_err("too long");
    assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateLapsed), "{error}");
    assert!(error.to_string().contains("join anew with a token"), "{error}");
    for error in [
        Client::connect(coordinator.quic_addr(), &client).await.expect_err("too long"),
        renew(coordinator.quic_addr(), &client).await.expect_err("too long"),
    ] {
        assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateLapsed), "{error}");
    }
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_revoked_does_not_come_back_after_its_certificate_has_expired() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let pki = Pki::open(&folder.path().join("pki")).unwrap();
        pki.with_certificate_life(2 * SECOND)
    };
    let pki = open();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let identity = pki.issue_worker("w").unwrap();
    let other = pki.issue_worker("v").unwrap();
    coordinator.revoke(Role::Worker, identity.name.clone()).await.unwrap();
    coordinator.stop().await;
    until_expired(&other).await;
    let coordinator = Coordinator::start(config(), &open()).await.unwrap();
    let error = renew(coordinator.quic_addr(), &identity).await.expect_err("revoked");
    assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateRevoked), "{error}");
    let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    let error = Worker::with(config, &Echo::open()).ended().await.expect_err("revoked");
    assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateRevoked), "{error}");
    renew(coordinator.quic_addr(), &other).await.unwrap();
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_away_renews_and_stays_a_client() {
    let (coordinator, pki) = cluster(60 * SECOND).await;
    let addr = coordinator.quic_addr();
    let old = pki.issue(Role::Client, "c").unwrap();
    until_expired(&old).await;
    let error = Client::connect(addr, &old).await.expect_err("expired");
    assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateExpired), "{error}");
    let new = renew(addr, &old).await.unwrap();
    let client = Client::connect(addr, &new).await.unwrap();
    assert!(client.models().await.is_ok());
    assert!(matches!(client.stats().await, Err(Error::RoleNeeded { .. })), "no administrator");
    let config = WorkerConfig::new(addr, new, 1);
    let error = Worker::with(config, &Echo::open()).ended().await.expect_err("no worker");
    assert!(error.to_string().contains("role"), "{error}");
    assert!(coordinator.workers().is_empty());
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_connections_end_with_the_certificate_in_force() {
    let (coordinator, pki) = cluster(60 * SECOND).await;
    let addr = coordinator.quic_addr();
    let gate = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &gate);
    coordinator.wait_for_workers(1).await.unwrap();
    let held = coordinator.submit(task("echo")).unwrap();
    let idle = pki.issue(Role::Client, "idle").unwrap();
    let idles = Client::connect(addr, &idle).await.unwrap();
    let waiting = tokio::spawn(async move { idles.wait(held).await });
    let mut careful = pki.issue(Role::Client, "careful").unwrap();
    let carefuls = Client::connect(addr, &careful).await.unwrap();
    // Three lifetimes of the certificates that are renewed.
    for _ in 0..6 {
        tokio::time::sleep(SECOND).await;
        careful = carefuls.renew(&careful).await.unwrap();
    }
    assert!(waiting.is_finished(), "it was sent away when its certificate expired");
    let error = waiting.await.unwrap().expect_err("sent away");
    assert_eq!(refusal(&error), Some(&JoinRefusal::CertificateExpired), "{error}");
    gate.let_go();
    let record = carefuls.wait(held).await.unwrap();
    assert_eq!(record.state, TaskState::Succeeded);
    assert_eq!(record.attempts, 1, "the worker's connection stayed");
    // Without another renewal this connection ends too.
    let began = std::time::Instant::now();
    while carefuls.models().await.is_ok() {
        assert!(began.elapsed() < 10 * SECOND, "the connection outlives its certificate");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("the worker is still there", || coordinator.worker("w").ok()).await;
    coordinator.stop().await;
}
