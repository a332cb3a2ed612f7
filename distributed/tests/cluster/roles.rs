//! Clients and administrators over the network: what they may ask, and how they are refused.

use crate::common::{Echo, Worker, config, coordinator, eventually, model, task};
use lgp_distributed::{
    Client, Coordinator, CoordinatorConfig, Error, Identity, JoinRefusal, Pki, Priority, Role,
    Services, Supervisor, TaskRecord, TaskSpec, TaskState, Tokens, WorkerConfig, WorkerId, enrol,
    join,
};
use lgp_memory::{DType, NamedTensor, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

fn name(text: &str) -> WorkerId {
    text.parse().unwrap()
}

async fn client(coordinator: &Coordinator, pki: &Pki, role: Role) -> Client {
    let identity = pki.issue(role, "x").unwrap();
    Client::connect(coordinator.quic_addr(), &identity).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gives_tasks_and_gets_what_becomes_of_them() {
    let (coordinator, pki) = coordinator().await;
    let gate = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w1", 4, &gate);
    coordinator.load(model("echo")).await.unwrap();
    coordinator.wait_for_workers(1).await.unwrap();
    let client = client(&coordinator, &pki, Role::Client).await;
    assert_eq!(client.models().await.unwrap(), [model("echo")]);

    // Calls do not wait for one another.
    let held = client.submit(task("echo")).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait(held).await }
    });
    assert!(!client.task(held).await.unwrap().state.is_terminal());
    let dropped = client.submit(task("echo")).await.unwrap();
    assert_eq!(client.cancel(dropped).await.unwrap().state, TaskState::Cancelled);
    gate.let_go();
    assert_eq!(waiting.await.unwrap().unwrap().outputs, Some(task("echo").inputs));

    // A client accepts the same specs as the handle in the process, and returns the same.
    let keyed = TaskSpec {
        priority: Priority::High,
        deadline: Some(Duration::from_secs(30)),
        idempotency_key: Some("k".into()),
        ..task("echo")
    };
    let record = client.run(keyed.clone()).await.unwrap();
    assert_eq!((record.state, record.priority), (TaskState::Succeeded, Priority::High));
    // The record sent to a client lacks the device and the attempts.
    let known = coordinator.task(record.task_id).await.unwrap();
    assert_eq!(TaskRecord { device: None, tries: Vec::new(), ..known }, record);
    assert_eq!(client.submit(keyed.clone()).await.unwrap(), record.task_id);
    let conflict = client.submit(TaskSpec { idempotency_key: keyed.idempotency_key, ..task("m") });
    assert!(
        matches!(conflict.await, Err(Error::Conflict { existing, .. }) if existing == record.task_id)
    );
    let durable = client.submit(TaskSpec { durable: true, ..task("echo") }).await;
    assert!(matches!(durable, Err(Error::NoJournal)), "{durable:?}");
    let failed = client.run(task("bad-input")).await.unwrap();
    assert!(failed.error.is_some_and(|e| e.message.contains("rank 1")));
    let unknown = "1-1".parse().unwrap();
    assert!(matches!(client.task(unknown).await, Err(Error::UnknownTask { .. })));

    // Bodies larger than what one connection keeps in flight.
    let bytes: Vec<u8> = (0..48 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
    let large = NamedTensor::new("x", Tensor::from_slice([bytes.len()], &bytes).unwrap());
    let none = NamedTensor::new("none", Tensor::zeros(DType::F32, [0, 7]).unwrap());
    let inputs = vec![none, large];
    let record = client.run(TaskSpec::new(model("echo"), inputs.clone())).await.unwrap();
    assert_eq!(record.outputs, Some(inputs));
    coordinator.stop().await;
    let stopped = client.models().await.expect_err("nobody is there");
    assert!(matches!(stopped, Error::Connection(_)), "{stopped}");
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Supervisor for Counted {
    fn scale(&self, workers: usize) -> Result<usize, String> {
        match workers {
            0..100 => Ok(self.0.swap(workers, Ordering::SeqCst)),
            _ => Err(format!("{workers} workers are too many")),
        }
    }

    fn replace(&self, _: &str) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_looks_after_the_cluster() {
    let pki = Pki::generate().unwrap();
    let supervisor = Arc::new(Counted::default());
    let services = Services {
        tokens: Some(Tokens::open(&pki).unwrap()),
        supervisor: Some(Arc::clone(&supervisor) as _),
        ..Services::default()
    };
    let coordinator = Coordinator::start_with(config(), &pki, services).await.unwrap();
    let worker = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let admin = client(&coordinator, &pki, Role::Admin).await;
    assert_eq!(admin.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
    let workers = admin.workers().await.unwrap();
    assert_eq!((workers[0].id.as_str(), workers[0].completed), ("w1", 1));
    assert_eq!(admin.stats().await.unwrap().tasks.succeeded, 1);

    assert_eq!((admin.scale(3).await.unwrap(), admin.scale(2).await.unwrap()), (0, 3));
    assert_eq!(supervisor.0.load(Ordering::SeqCst), 2);
    let refused = admin.scale(100).await.expect_err("too many");
    assert!(refused.to_string().contains("100 workers are too many"), "{refused}");

    // A token makes a member of its own role.
    let addr = coordinator.quic_addr();
    for makes in [Role::Worker, Role::Client, Role::Admin] {
        let (info, token) = admin.create_token(makes, 1, HOUR).await.unwrap();
        assert_eq!((info.role, info.uses_left), (makes, 1));
        for wanted in [Role::Worker, Role::Client, Role::Admin] {
            if wanted == makes {
                continue;
            }
            let error = enrol(addr, &token, wanted, &name("new")).await.expect_err("another role");
            let refusal = JoinRefusal::TokenRole { makes, wanted };
            assert!(
                matches!(&error, Error::JoinRefused { refusal: r, .. } if *r == refusal),
                "{error}"
            );
        }
        let identity = enrol(addr, &token, makes, &name("new")).await.unwrap();
        let calls = Client::connect(addr, &identity).await;
        match makes {
            Role::Worker => assert!(matches!(calls, Err(Error::Refused { .. })), "{calls:?}"),
            Role::Client => {
                let error = calls.unwrap().drain().await.expect_err("for administrators");
                let needs = matches!(&error, Error::RoleNeeded { needs: Role::Admin, .. });
                assert!(needs, "{error}");
            }
            Role::Admin => assert!(calls.unwrap().stats().await.is_ok()),
        }
    }
    let unknown = admin.shutdown_worker("w9").await;
    assert!(matches!(unknown, Err(Error::UnknownWorker { .. })), "{unknown:?}");
    admin.drain().await.unwrap();
    assert!(matches!(admin.submit(task("echo")).await, Err(Error::Draining)));
    admin.shutdown_worker("w1").await.unwrap();
    worker.ended().await.unwrap();
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_certificate_is_renewed() {
    let pki = Pki::generate().unwrap().with_certificate_life(Duration::from_secs(4));
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let old = pki.issue(Role::Admin, "a").unwrap();
    let admin = Client::connect(coordinator.quic_addr(), &old).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let new = admin.renew(&old).await.unwrap();
    assert_ne!(new.key_pem, old.key_pem);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let expired = Client::connect(coordinator.quic_addr(), &old).await.expect_err("expired");
    let refusal = JoinRefusal::CertificateExpired;
    assert!(
        matches!(&expired, Error::JoinRefused { refusal: r, .. } if *r == refusal),
        "{expired}"
    );
    // The connection used for the renewal continues with the new certificate.
    assert!(admin.stats().await.is_ok());
    let again = Client::connect(coordinator.quic_addr(), &new).await.unwrap();
    assert!(again.stats().await.is_ok(), "the role is kept");
    coordinator.stop().await;
}

fn is_revoked(error: &Error) -> bool {
    let refusal = JoinRefusal::CertificateRevoked;
    matches!(error, Error::JoinRefused { refusal: r, .. } if *r == refusal)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_revoked_is_sent_away_and_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let pki = Pki::open(&folder.path().join("pki")).unwrap();
        let tokens = Tokens::open(&pki).unwrap();
        let services = Services { tokens: Some(tokens.clone()), ..Services::default() };
        (pki, tokens, services)
    };
    let (pki, tokens, services) = open();
    let coordinator = Coordinator::start_with(config(), &pki, services).await.unwrap();
    let identity = pki.issue_worker("w1").unwrap();
    let start = |coordinator: &Coordinator, identity: &Identity| {
        let config = WorkerConfig::new(coordinator.quic_addr(), identity.clone(), 1);
        Worker::with(config, &Echo::open())
    };
    let worker = start(&coordinator, &identity);
    let other = Worker::start(&coordinator, &pki, "w2", 1, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    let admin = client(&coordinator, &pki, Role::Admin).await;
    let bob = pki.issue(Role::Client, "bob").unwrap();
    let bobs = Client::connect(coordinator.quic_addr(), &bob).await.unwrap();

    let (revocation, closed) = admin.revoke(Role::Worker, name("w1")).await.unwrap();
    assert_eq!((revocation.name.as_str(), closed), ("w1", 1));
    let error = worker.ended().await.expect_err("it was sent away");
    assert!(is_revoked(&error), "{error}");
    let error = start(&coordinator, &identity).ended().await.expect_err("it is not let in");
    assert!(is_revoked(&error), "{error}");
    assert_eq!(admin.revoke(Role::Client, name("bob")).await.unwrap().1, 1);
    let error = bobs.renew(&bob).await.expect_err("its connection is closed");
    assert!(is_revoked(&error), "{error}");
    // Other workers are not affected.
    assert_eq!(coordinator.run(task("echo")).await.unwrap().worker, Some(name("w2")));
    other.stop().await.unwrap();
    coordinator.stop().await;

    // A coordinator that starts later knows the revocation, and admits a machine with a new token.
    let (pki, _, services) = open();
    let coordinator = Coordinator::start_with(config(), &pki, services).await.unwrap();
    assert_eq!(pki.revoked().len(), 2);
    let error = start(&coordinator, &identity).ended().await.expect_err("it is not let in");
    assert!(is_revoked(&error), "{error}");
    let error = Client::connect(coordinator.quic_addr(), &bob).await.expect_err("nor is bob");
    assert!(is_revoked(&error), "{error}");
    drop(tokens);
    let (_, token) = coordinator.tokens().unwrap().create(1, HOUR).unwrap();
    coordinator.revoke(Role::Worker, name("w1")).await.unwrap();
    // A certificate issued in the second of the revocation counts as revoked. So this machine joins
    // in a later second, and earlier attempts must not use up the token.
    let identity = join(coordinator.quic_addr(), &token, &name("w1")).await.unwrap();
    let _worker = start(&coordinator, &identity);
    eventually("it is back", || coordinator.worker("w1").ok()).await;
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_revoked_administrator_has_made_lets_nobody_in() {
    let pki = Pki::generate().unwrap();
    let tokens = Tokens::open(&pki).expect("new");
    let services = Services { tokens: Some(tokens.clone()), ..Services::default() };
    let coordinator = Coordinator::start_with(config(), &pki, services).await.unwrap();
    let addr = coordinator.quic_addr();
    let admin = client(&coordinator, &pki, Role::Admin).await;
    let (info, token) = admin.create_token(Role::Admin, 1, HOUR).await.unwrap();
    assert_eq!(info.made_by, Some((Role::Admin, name("x"))));
    let (own, _) = tokens.create(1, HOUR).unwrap();
    assert_eq!(own.made_by, None);
    // A future that is dropped at once has begun the revocation all the same.
    let mut revoking = Box::pin(coordinator.revoke(Role::Admin, name("x")));
    let begun = std::future::poll_fn(|context| {
        std::task::Poll::Ready(revoking.as_mut().poll(context).is_pending())
    });
    begun.await;
    drop(revoking);
    eventually("the token is taken back", || (tokens.list().len() == 1).then_some(())).await;
    assert_eq!(tokens.list(), [own]);
    let error = enrol(addr, &token, Role::Admin, &name("y")).await.expect_err("taken back");
    let refusal = JoinRefusal::TokenUnknown;
    assert!(matches!(&error, Error::JoinRefused { refusal: r, .. } if *r == refusal), "{error}");
    let error = admin.stats().await.expect_err("sent away");
    assert!(is_revoked(&error), "{error}");
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_hears_of_a_new_coordinator_before_the_old_one_times_out() {
    let pki = Pki::generate().unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let own = pki.clone();
    let first = runtime.spawn(async move { Coordinator::start(config(), &own).await });
    let first = first.await.unwrap().unwrap();
    let addr = first.quic_addr();
    let workers: Vec<_> =
        (0..8).map(|n| Worker::start(&first, &pki, &format!("w{n}"), 1, &Echo::open())).collect();
    first.wait_for_workers(8).await.unwrap();
    // No farewell and no more packets, like a killed process.
    let began = Instant::now();
    runtime.shutdown_background();
    drop(first);
    let config = CoordinatorConfig { quic_addr: addr, ..config() };
    let second = loop {
        match Coordinator::start(config.clone(), &pki).await {
            Ok(second) => break second,
            Err(Error::Bind { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{error}"),
        }
    };
    second.wait_for_workers(1).await.unwrap();
    let one = began.elapsed();
    second.wait_for_workers(8).await.unwrap();
    let all = began.elapsed();
    println!("the first worker was back after {one:?}, the last of 8 after {all:?}");
    // By silence alone a worker would notice only 2.5 s after the last packet, which came at most
    // half a second before the end.
    assert!(all < Duration::from_millis(1_800), "{all:?}");
    drop(workers);
    second.stop().await;
}
