//! Admission: certificates, roles and names.

use crate::common::{Echo, Worker, coordinator, eventually, task};
use lgp_distributed::{Error, Identity, Pki, TaskState, WorkerConfig};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_another_cluster_is_refused_by_both_sides() {
    let (coordinator, pki) = coordinator().await;
    let other = Pki::generate().unwrap();
    let own = pki.issue_worker("w1").unwrap();
    let foreign = other.issue_worker("w1").unwrap();
    // The worker trusts the right authority but shows a certificate of another one, and the
    // reverse.
    let cases = [
        ("foreign certificate", Identity { ca_pem: own.ca_pem.clone(), ..foreign.clone() }),
        ("foreign authority", Identity { ca_pem: foreign.ca_pem.clone(), ..own.clone() }),
        ("foreign in all", foreign),
    ];
    for (what, identity) in cases {
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
        let error = Worker::with(config, &Echo::open()).ended().await.expect_err(what);
        assert!(matches!(error, Error::Refused { .. }), "{what}: {error}");
        assert!(coordinator.workers().is_empty(), "{what}");
    }
    // The right worker is still admitted.
    let config = WorkerConfig::new(coordinator.quic_addr(), own, 1);
    let _worker = Worker::with(config, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cannot_take_anothers_name() {
    let (coordinator, pki) = coordinator().await;
    let identity = Identity { name: "w2".parse().unwrap(), ..pki.issue_worker("w1").unwrap() };
    let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    let error = Worker::with(config, &Echo::open()).ended().await.expect_err("not its name");
    assert!(error.to_string().contains("does not state the worker's name"), "{error}");
    assert!(coordinator.workers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_of_the_same_name_takes_over() {
    let (coordinator, pki) = coordinator().await;
    let gate = Echo::shut();
    let first = Worker::start(&coordinator, &pki, "w1", 1, &gate);
    coordinator.wait_for_workers(1).await.unwrap();
    let id = coordinator.submit(task("echo")).unwrap();
    eventually("execution", || {
        (gate.begun.load(std::sync::atomic::Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    let _second = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    let record = coordinator.wait(id).await.unwrap();
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
    let error = first.ended().await.expect_err("superseded");
    assert!(error.to_string().contains("under the same name"), "{error}");
    assert_eq!(coordinator.workers().len(), 1);
    // The late answer of the first attempt is not accepted.
    gate.let_go();
    assert_eq!(coordinator.stats().tasks.succeeded, 1);
}

#[test]
fn names_that_could_mean_something_else_are_not_issued() {
    let pki = Pki::generate().unwrap();
    for name in ["", "-a", "a-", "A", "a.b", "a b", "ä", "*", &"x".repeat(64)] {
        assert!(matches!(pki.issue_worker(name), Err(Error::Parse { .. })), "{name:?}");
    }
    assert!(pki.issue_worker(&"x".repeat(63)).is_ok());
}

#[test]
fn an_identity_survives_json_and_hides_its_key_from_logs() {
    let identity = Pki::generate().unwrap().issue_worker("w1").unwrap();
    assert!(!format!("{identity:?}").contains("PRIVATE"));
    let bytes = postcard::to_stdvec(&identity).unwrap();
    let back: Identity = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(back.cert_pem, identity.cert_pem);
}
