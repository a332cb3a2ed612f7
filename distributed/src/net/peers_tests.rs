//! Several coordinators of one cluster in one process, which share a lead and a log in memory.

use crate::control::authority::{Authority, InMemory};
use crate::control::memory::Memory;
use crate::net::coordinator::gate::Services;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::pki::request;
use crate::net::tests::ANY;
use crate::{
    Coordinator, CoordinatorConfig, DeviceStatus, Error, ExecError, Executor, ExecutorStatus,
    ModelRef, Pki, Role, Stop, TaskFilter, TaskId, TaskSpec, TaskState, WorkerConfig, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;

/// Returns what it is given after as many milliseconds as the first number says.
struct Echo;

impl Executor for Echo {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }

    fn unload(&self, _: usize, _: &ModelRef) {}

    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        let wait_ms = inputs[0].tensor.as_slice::<i64>().expect("numbers")[0];
        for _ in 0..wait_ms / 5 {
            if stop.is_stopped() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(inputs.to_vec())
    }

    fn status(&self) -> ExecutorStatus {
        let (device, backend) = ("cpu:0".into(), "cpu".into());
        ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
    }
}

/// A cluster's lead, log and certificates.
struct Rig {
    folder: tempfile::TempDir,
    pki: Pki,
    lead: InMemory,
    log: Memory,
}

/// A coordinator with one worker.
struct Member {
    coordinator: Coordinator,
    worker: JoinHandle<crate::Result<()>>,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pki = Pki::generate().expect("random numbers");
        Self { folder, pki, lead: InMemory::default(), log: Memory::shared() }
    }

    fn models(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.models"))
    }

    /// Puts a file there that was written a while ago.
    fn put(&self, name: &str, path: &str, bytes: &[u8]) {
        let at = self.models(name).join(path);
        std::fs::create_dir_all(at.parent().expect("inside")).expect("ours");
        std::fs::write(&at, bytes).expect("ours");
        let then = SystemTime::now() - Duration::from_secs(10);
        let file = std::fs::File::options().write(true).open(&at).expect("ours");
        file.set_modified(then).expect("ours");
    }

    fn get(&self, name: &str, path: &str) -> Option<Vec<u8>> {
        std::fs::read(self.models(name).join(path)).ok()
    }

    async fn start(&self, name: &str) -> Member {
        let pki = self.pki.with_authority(Box::new(self.lead.view())).expect("its own");
        let journal = Some(self.folder.path().join(name));
        let mirrored = Some(self.models(name));
        let config = CoordinatorConfig { quic_addr: ANY, journal, mirrored, ..Default::default() };
        let place = Arc::new(self.log.clone());
        let started = Coordinator::start_among(place, config, &pki, Services::default());
        let coordinator = started.await.expect("a free port");
        let is_led = || coordinator.leads() || coordinator.peers().iter().any(|peer| peer.leads);
        until("one leads", is_led).await;
        let identity = pki.issue_worker(name).expect("random numbers");
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 2);
        let worker = tokio::spawn(run_worker(config, Arc::new(Echo), std::future::pending()));
        let model = model();
        coordinator.load(model).await.expect("the worker comes");
        Member { coordinator, worker }
    }
}

impl Member {
    async fn stop(self) {
        self.coordinator.stop().await;
        self.worker.abort();
    }
}

fn model() -> ModelRef {
    ModelRef { name: "echo".into(), version: 1, sha256: "00".repeat(32) }
}

fn task(wait_ms: i64, durable: bool) -> TaskSpec {
    let x = Tensor::from_slice([2], &[wait_ms, 7]).expect("small");
    let mut spec = TaskSpec::new(model(), vec![NamedTensor::new("x", x)]);
    spec.durable = durable;
    spec
}

fn keyed(key: &str) -> TaskSpec {
    TaskSpec { idempotency_key: Some(key.into()), ..task(0, true) }
}

async fn submit(coordinator: &Coordinator, spec: TaskSpec) -> crate::Result<TaskId> {
    Ok(coordinator.submit_all(vec![(spec, Vec::new())]).await?[0])
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 10 s");
}

async fn ended(coordinator: &Coordinator, id: TaskId) -> TaskState {
    let waiting = tokio::time::timeout(Duration::from_secs(20), coordinator.wait(id)).await;
    let record = waiting.expect("in time").expect("known");
    assert_eq!(record.state == TaskState::Succeeded, record.outputs.is_some());
    record.state
}

#[tokio::test(flavor = "multi_thread")]
async fn any_coordinator_takes_tasks_and_answers_for_them() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let (one, two) = (&first.coordinator, &second.coordinator);
    let both = || one.peers().len() == 2 && one.peers() == two.peers();
    until("they know each other", both).await;
    assert!(!two.leads());
    assert_eq!(two.peers()[0].number, one.epoch());
    assert_eq!(two.peers()[1].quic, two.quic_addr().to_string());

    // The leader takes durable tasks, wherever they are submitted.
    let id = submit(two, task(0, true)).await.expect("passed on");
    assert_eq!(id.epoch, one.epoch());
    for coordinator in [two, one] {
        assert_eq!(ended(coordinator, id).await, TaskState::Succeeded);
        assert_eq!(coordinator.state_of(id).await.expect("known"), TaskState::Succeeded);
        assert_eq!(*coordinator.model_of(id).await.expect("known"), model());
        assert!(!coordinator.explain(id).await.expect("known").is_empty());
    }
    // A task in memory stays where it was submitted, and both coordinators answer for it.
    let fleeting = submit(two, task(0, false)).await.expect("room");
    assert_eq!(fleeting.epoch, two.epoch());
    for coordinator in [one, two] {
        assert_eq!(ended(coordinator, fleeting).await, TaskState::Succeeded);
    }
    let gone = submit(two, task(0, false)).await.expect("room");
    assert_eq!(ended(one, gone).await, TaskState::Succeeded);
    assert_eq!(one.let_go(gone).await.expect("it has ended"), TaskState::Succeeded);
    // A key stands for one task in all of the cluster.
    let keys = [submit(two, keyed("k")).await, submit(one, keyed("k")).await];
    let [Ok(there), Ok(here)] = keys else { panic!("{keys:?}") };
    assert_eq!(there, here);
    assert_eq!(two.keyed("k").await.expect("reached").expect("known").0, here);
    let other = TaskSpec { priority: crate::Priority::High, ..task(1, true) };
    let conflict = submit(two, TaskSpec { idempotency_key: Some("k".into()), ..other }).await;
    assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");

    // The leader takes whole graphs, and tasks that depend on a durable one.
    let graph = vec![(task(200, true), vec![]), (task(0, true), vec![0])];
    let graph = two.submit_all(graph).await.expect("passed on");
    let after = TaskSpec { depends_on: vec![graph[1]], ..task(0, false) };
    let after = submit(two, after).await.expect("passed on");
    assert_eq!(ended(two, after).await, TaskState::Succeeded);
    let slow = submit(two, task(10_000, true)).await.expect("passed on");
    assert_eq!(two.cancel(slow).await.expect("known").task_id, slow);
    assert_eq!(ended(one, slow).await, TaskState::Cancelled);
    assert_eq!(two.let_go(slow).await.expect("it has ended"), TaskState::Cancelled);
    assert!(matches!(two.task(slow).await, Err(Error::Expired { .. })));
    let none = TaskId { epoch: 5, seq: 5 };
    assert!(matches!(two.task(none).await, Err(Error::UnknownTask { .. })));

    // Both list what they and the leader have, page by page.
    for coordinator in [one, two] {
        let mut seen = Vec::new();
        let mut filter = TaskFilter { limit: 2, ..TaskFilter::default() };
        loop {
            let page = coordinator.tasks(&filter).await.expect("reached");
            seen.extend(page.tasks.iter().map(|task| task.task_id));
            let Some(next) = page.next else { break };
            filter.after = Some(next);
        }
        let expected = [id, here, graph[0], graph[1], after];
        assert!(expected.iter().all(|id| seen.contains(id)), "{seen:?}");
        assert_eq!(seen.contains(&fleeting), coordinator.epoch() == two.epoch());
        let mut once = seen.clone();
        once.sort_unstable_by_key(|id| (id.epoch, id.seq));
        once.dedup();
        assert_eq!(once.len(), seen.len());
    }
    second.stop().await;
    first.stop().await;
}

/// Workers take a refusal that blames the request as final.
#[test]
fn who_follows_refuses_no_certificate_for_good() {
    let (pki, lead) = (Pki::generate().expect("random numbers"), InMemory::default());
    let leading = lead.view();
    leading.lead(1).expect("free");
    let follower = pki.with_authority(Box::new(lead.view())).expect("its own");
    let (_, csr) = request().expect("random numbers");
    let name = "w".parse().expect("a name");
    let signed = follower.sign(Role::Worker, &name, &csr, SystemTime::now());
    let error = signed.expect_err("it cannot note how long certificates live");
    assert_eq!(JoinRefusal::unsigned(&error), JoinRefusal::Unavailable, "{error}");
    let malformed = pki.sign(Role::Worker, &name, b"?", SystemTime::now());
    let error = malformed.expect_err("it is no request");
    assert_eq!(JoinRefusal::unsigned(&error), JoinRefusal::Malformed, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_one_goes_on_when_the_leader_ends() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let two = second.coordinator.clone();
    let ids = two.submit_all((0..20).map(|_| (task(50, true), vec![])).collect()).await;
    let ids = ids.expect("passed on");
    let waiting: Vec<_> = ids.iter().map(|id| (two.clone(), *id)).collect();
    let waiting =
        waiting.into_iter().map(|(two, id)| tokio::spawn(async move { ended(&two, id).await }));
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.stop().await;
    // Callers that wait at the second coordinator notice nothing.
    for waiting in waiting {
        assert_eq!(waiting.await.expect("no panic"), TaskState::Succeeded);
    }
    assert!(two.leads());
    let more = submit(&two, task(0, true)).await.expect("it leads now");
    assert_eq!(ended(&two, more).await, TaskState::Succeeded);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_deposed_hands_over_and_may_lead_again() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let (one, two) = (first.coordinator.clone(), second.coordinator.clone());
    // Both slots are taken, by one task of either kind.
    let fleeting = submit(&one, task(1_500, false)).await.expect("room");
    let long = submit(&one, task(1_500, true)).await.expect("it leads");
    let queued = submit(&one, task(0, true)).await.expect("it leads");
    let waits = tokio::spawn({
        let one = one.clone();
        async move { ended(&one, long).await }
    });
    until("it runs", || one.state(long).is_ok_and(|state| state == TaskState::Running)).await;

    // Another is allowed to lead, and is faster than the first.
    rig.lead.depose();
    until("another leads", || two.leads() || one.peers().is_empty()).await;
    until("the first follows", || !one.leads()).await;
    assert!(matches!(one.state(long), Err(Error::UnknownTask { .. } | Error::Expired { .. })));
    assert_eq!(waits.await.expect("no panic"), TaskState::Succeeded, "at the second one");
    assert_eq!(ended(&one, queued).await, TaskState::Succeeded);
    assert_eq!(ended(&one, fleeting).await, TaskState::Succeeded, "it never stopped");
    let passed = submit(&one, task(0, true)).await.expect("passed on");
    assert_eq!(passed.epoch, two.epoch());

    // And back again, with what both have accepted.
    let open = submit(&two, task(3_000, true)).await.expect("it leads");
    second.stop().await;
    until("the first leads again", || one.leads()).await;
    for id in [long, queued, passed, open] {
        assert_eq!(ended(&one, id).await, TaskState::Succeeded, "{id}");
    }
    let stats = one.stats().tasks;
    assert_eq!((stats.queued, stats.running, stats.failed), (0, 0, 0), "{stats:?}");
    first.stop().await;
}

/// A coordinator that stood still until its lead was over must not tell what the next leader knows.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_not_noticed_that_another_leads_says_nothing_old() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let third = rig.start("c").await;
    let (one, two, three) = (&first.coordinator, &second.coordinator, &third.coordinator);
    let before = submit(one, keyed("before")).await.expect("it leads");
    let open = submit(one, task(2_500, true)).await.expect("it leads");
    rig.lead.stand_still();
    until("another leads", || two.leads() || three.leads()).await;
    let (leader, other) = if two.leads() { (two, three) } else { (three, two) };
    let after = submit(leader, keyed("after")).await.expect("it leads");
    for coordinator in [one, other] {
        assert_eq!(coordinator.keyed("after").await.expect("reached").expect("known").0, after);
        assert_eq!(coordinator.keyed("none").await.expect("reached"), None);
        assert_eq!(coordinator.task(after).await.expect("known").task_id, after);
    }
    assert_eq!(one.cancel(open).await.expect("passed on").task_id, open);
    assert_eq!(ended(leader, open).await, TaskState::Cancelled);
    assert_eq!(one.state_of(open).await.expect("known"), TaskState::Cancelled);
    let listed = one.tasks(&TaskFilter::default()).await.expect("reached").tasks;
    assert!(listed.iter().any(|task| task.task_id == after));
    // No log would refuse these tasks.
    let in_memory = TaskSpec { durable: false, ..keyed("in memory") };
    let in_memory = submit(one, in_memory).await.expect("passed on");
    assert_eq!(in_memory.epoch, leader.epoch());
    let depends = TaskSpec { depends_on: vec![in_memory], ..task(0, false) };
    assert_eq!(submit(one, depends).await.expect("passed on").epoch, leader.epoch());
    assert!(one.leads(), "it has not noticed yet");
    // A key that was known here before is still known.
    assert_eq!(one.keyed("before").await.expect("known").expect("known").0, before);
    rig.lead.notice();
    until("it follows", || !one.leads()).await;
    for member in [third, second, first] {
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_in_memory_are_told_of_while_none_leads() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let (one, two) = (&first.coordinator, &second.coordinator);
    let durable = submit(one, task(60_000, true)).await.expect("it leads");
    let tasks = [submit(one, task(900, false)).await, submit(two, task(900, false)).await];
    let tasks = tasks.map(|id| id.expect("room"));
    let long = submit(two, task(12_000, false)).await.expect("room");
    rig.lead.close(true);
    until("none leads", || [one, two].iter().all(|it| !it.peers().iter().any(|it| it.leads))).await;
    let began = std::time::Instant::now();
    for (coordinator, id) in [(one, tasks[1]), (two, tasks[0]), (one, tasks[0])] {
        assert_eq!(coordinator.model_of(id).await.map(|it| (*it).clone()).ok(), Some(model()));
        assert_eq!(ended(coordinator, id).await, TaskState::Succeeded);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // Longer than the wait for a leader.
    let waits = tokio::spawn({
        let one = one.clone();
        async move { ended(&one, long).await }
    });
    // Only a leader knows the tasks of others.
    let in_memory = || TaskSpec { durable: false, ..keyed("k") };
    let (asked, submitted) = tokio::join!(two.state_of(durable), submit(one, in_memory()));
    assert!(matches!(asked, Err(Error::NoLeader { .. })), "{asked:?}");
    assert!(matches!(submitted, Err(Error::NoLeader { .. })), "{submitted:?}");
    assert_eq!(waits.await.expect("no panic"), TaskState::Succeeded);
    rig.lead.close(false);
    two.cancel(durable).await.expect("one leads again");
    assert_eq!(ended(one, durable).await, TaskState::Cancelled);
    second.stop().await;
    first.stop().await;
}

/// All of them are in use while any of them may be restarted.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_every_coordinator_at_once() {
    let rig = Rig::new();
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    let (one, two) = (first.coordinator.clone(), second.coordinator.clone());
    // One coordinator is named twice, and one address has none.
    let places =
        [one.quic_addr(), two.quic_addr(), one.quic_addr(), "127.0.0.1:9".parse().expect("")];
    let places = places.map(|place| place.to_string()).join(",");
    let identity = rig.pki.issue_worker("both").expect("random numbers");
    let config =
        WorkerConfig::new(places.parse::<crate::Coordinators>().expect("ours"), identity, 2);
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move { drop(left.await) };
    let both = tokio::spawn(run_worker(config, Arc::new(Echo), shutdown));
    let has = |coordinator: &Coordinator| {
        let workers = coordinator.workers();
        workers.iter().any(|w| w.id.as_str() == "both" && w.state == crate::WorkerState::Ready)
    };
    until("both know it", || has(&one) && has(&two)).await;
    for member in [&first, &second] {
        member.worker.abort();
    }
    until("it alone is left", || {
        let ready = |w: &&crate::WorkerInfo| w.state == crate::WorkerState::Ready;
        [&one, &two].iter().all(|it| it.workers().iter().filter(ready).count() == 1)
    })
    .await;
    one.load(model()).await.expect("it is there");
    two.load(model()).await.expect("it is there");
    // Durable tasks, which the leader takes, run there, and tasks of the second coordinator.
    let ids: Vec<_> = (0..20).map(|at| (task(20, at % 2 == 0), vec![])).collect();
    for spec in ids {
        let id = two.submit_all(vec![spec]).await.expect("taken")[0];
        assert_eq!(ended(&two, id).await, TaskState::Succeeded);
    }
    assert!(has(&one) && has(&two));
    leave.send(()).expect("it runs");
    let done = tokio::time::timeout(Duration::from_secs(10), both).await.expect("in time");
    done.expect("no panic").expect("it left");
    second.stop().await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_the_leader_are_those_of_all() {
    let rig = Rig::new();
    let large: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    rig.put("a", "m/1/model.onnx", b"first");
    rig.put("a", "m/1/weights/w.bin", &large);
    rig.put("a", "m/1/entry.json", b"its own");
    rig.put("b", "own/1/model.onnx", b"put there before it took part");
    let first = rig.start("a").await;
    until("one leads", || first.coordinator.leads()).await;
    let second = rig.start("b").await;
    until("they come", || rig.get("b", "m/1/weights/w.bin").as_ref() == Some(&large)).await;
    assert_eq!(rig.get("b", "m/1/model.onnx").as_deref(), Some(&b"first"[..]));
    assert_eq!(rig.get("b", "m/1/entry.json"), None);
    // Files that have changed, come and gone since.
    rig.put("a", "m/1/model.onnx", b"changed");
    rig.put("a", "m/2/model.onnx", b"second");
    rig.put("a", "aliases.json", b"{}");
    std::fs::remove_dir_all(rig.models("a").join("m/1/weights")).expect("ours");
    until("it is changed", || rig.get("b", "m/1/model.onnx").as_deref() == Some(b"changed")).await;
    until("they have come", || {
        rig.get("b", "m/2/model.onnx").is_some() && rig.get("b", "aliases.json").is_some()
    })
    .await;
    until("it has gone", || !rig.models("b").join("m/1/weights").exists()).await;
    // The leader's file replaces a change that was made elsewhere.
    rig.put("b", "m/2/model.onnx", b"no");
    until("it is put back", || rig.get("b", "m/2/model.onnx").as_deref() == Some(b"second")).await;
    assert!(
        rig.get("a", "own/1/model.onnx").is_none() && rig.get("b", "own/1/model.onnx").is_some()
    );
    // The next leader has all of the files, and files of its own.
    first.stop().await;
    until("the other leads", || second.coordinator.leads()).await;
    let third = rig.start("c").await;
    until("they come", || rig.get("c", "own/1/model.onnx").is_some()).await;
    until("all of them", || rig.get("c", "m/2/model.onnx").as_deref() == Some(b"second")).await;
    third.stop().await;
    second.stop().await;
}
