//! Durable tasks, dependencies, devices and hedged attempts over real QUIC and a real journal.

use crate::common::{Echo, Worker, config, coordinator, eventually, model, task};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, DeviceStatus, Error, ExecError, Executor, ExecutorStatus,
    JournalError, ModelRef, Pki, Stop, TaskErrorKind, TaskFilter, TaskRecord, TaskSpec, TaskState,
};
use lgp_memory::NamedTensor;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn durable(name: &str) -> TaskSpec {
    TaskSpec { durable: true, ..task(name) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_coordinator_goes_on_with_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("tasks.journal"));
    let config = || CoordinatorConfig { journal: journal.clone(), ..config() };
    let pki = Pki::generate().unwrap();
    let first = Coordinator::start(config(), &pki).await.unwrap();

    let keyed = TaskSpec { idempotency_key: Some("k".into()), ..durable("echo") };
    let graph = vec![
        (durable("echo"), vec![1]),
        (durable("echo"), vec![]),
        (durable("bad-input"), vec![]),
        (durable("echo"), vec![2]),
        (keyed.clone(), vec![]),
    ];
    let ids = first.submit_all(graph).await.unwrap();
    let commits = first.stats().group_commit;
    assert_eq!((commits.of, commits.hits), (1, 0), "what comes together is one change");
    let lost = first.submit(task("echo")).unwrap();
    let second = Coordinator::start(config(), &pki).await;
    assert!(matches!(second, Err(Error::Journal(JournalError::InUse { .. }))), "{second:?}");
    first.stop().await;
    assert!(matches!(first.wait(ids[0]).await, Err(Error::Stopped)), "it is not over");

    let second = Coordinator::start(config(), &pki).await.unwrap();
    let tasks = second.stats().tasks;
    assert_eq!((tasks.submitted, tasks.queued), (0, 5), "what is left is open, and not new");
    let _worker = Worker::start(&second, &pki, "w", 1, &Echo::open());
    for (at, id) in ids.iter().enumerate() {
        let record = second.wait(*id).await.unwrap();
        let code = record.error.map(|error| error.code);
        let expected = match at {
            2 => Some(TaskErrorKind::BadInput),
            3 => Some(TaskErrorKind::DependencyFailed),
            _ => None,
        };
        assert_eq!((code, record.outputs.is_some()), (expected, expected.is_none()), "{at}");
    }
    assert!(matches!(second.task(lost).await, Err(Error::Expired { .. })), "it was not durable");
    assert_eq!(second.submit_all(vec![(keyed, vec![])]).await.unwrap(), [ids[4]]);

    // Records that were shown once are there again, and a backup has the same ones.
    let copy = folder.path().join("copy.journal");
    second.back_up(copy.clone()).await.unwrap();
    let again = second.back_up(copy.clone()).await;
    assert!(matches!(again, Err(Error::Journal(JournalError::Exists { .. }))), "{again:?}");
    // The journal does not keep the device and the attempts.
    let shown = second.task(ids[0]).await.unwrap();
    let shown = TaskRecord { device: None, tries: Vec::new(), ..shown };
    second.stop().await;
    for path in [journal.clone().unwrap(), copy] {
        let config = CoordinatorConfig { journal: Some(path), ..config() };
        let third = Coordinator::start(config, &pki).await.unwrap();
        assert_eq!(third.task(ids[0]).await.unwrap(), shown);
        let tasks = third.stats().tasks;
        assert_eq!((tasks.submitted, tasks.succeeded), (0, 0), "a restart is no work");
        third.stop().await;
    }
}

fn bulky(number: usize) -> TaskSpec {
    let value = u8::try_from(number % 251).unwrap();
    let mut bytes = vec![value; 602_112];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let x = lgp_memory::Tensor::from_slice([bytes.len()], &bytes).unwrap();
    let inputs = vec![NamedTensor::new("x", x)];
    TaskSpec { inputs, idempotency_key: Some(format!("bulky-{number}")), ..durable("echo") }
}

/// Ten times as many tasks take a few seconds, and exceed the bytes that may wait at once.
#[tokio::test(flavor = "multi_thread")]
async fn many_bytes_at_once_are_accepted_or_told_when_to_come_again() {
    const TOGETHER: usize = 20;
    const APART: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("tasks.journal"));
    let config = CoordinatorConfig { journal, queue_bytes_max: 1 << 30, ..config() };
    let coordinator = Coordinator::start(config, &Pki::generate().unwrap()).await.unwrap();
    let batch = (0..TOGETHER).map(|number| (bulky(number), vec![])).collect();
    assert_eq!(coordinator.submit_all(batch).await.unwrap().len(), TOGETHER);
    let calls: Vec<_> = (TOGETHER..TOGETHER + APART)
        .map(|number| {
            let coordinator = coordinator.clone();
            tokio::spawn(async move {
                loop {
                    match coordinator.submit_all(vec![(bulky(number), vec![])]).await {
                        Ok(ids) => return ids,
                        Err(Error::Backlog { retry_after, .. }) => {
                            assert!(retry_after <= Duration::from_secs(30));
                            tokio::time::sleep(retry_after).await;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().len(), 1);
    }
    let page = coordinator.tasks(&TaskFilter::default()).await.unwrap();
    assert_eq!(page.tasks.len(), TOGETHER + APART);
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_journal_durability_is_refused() {
    let (coordinator, _) = coordinator().await;
    let refused = coordinator.submit_all(vec![(durable("echo"), vec![])]).await;
    assert!(matches!(refused, Err(Error::NoJournal)), "{refused:?}");
    let at_once = coordinator.submit(durable("echo"));
    assert!(matches!(at_once, Err(Error::InvalidTask { .. })), "{at_once:?}");
}

/// Two devices, each of which reports its number.
#[derive(Default)]
struct Two {
    running: Mutex<Vec<usize>>,
    both: Condvar,
}

impl Executor for Two {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        device: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        let mut running = self.running.lock().unwrap();
        running.push(device);
        self.both.notify_all();
        // Continues once both devices are running at the same time.
        let waited = self.both.wait_timeout_while(running, Duration::from_secs(10), |running| {
            !(running.contains(&0) && running.contains(&1))
        });
        drop(waited.unwrap());
        Ok(inputs.to_vec())
    }
    fn status(&self) -> ExecutorStatus {
        let device = |name: &str| DeviceStatus { device: name.into(), ..DeviceStatus::default() };
        let devices = vec![device("opencl:0"), device("opencl:1")];
        ExecutorStatus { devices, ..ExecutorStatus::default() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_device_of_a_worker_has_slots_of_its_own() {
    let (coordinator, pki) = coordinator().await;
    let executor = Arc::new(Two::default());
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &executor);
    coordinator.wait_for_workers(1).await.unwrap();
    let loaded = coordinator.load(model("echo")).await.unwrap();
    assert!(loaded.iter().all(|(_, result)| result.is_ok()), "{loaded:?}");
    let ids = [(); 2].map(|()| coordinator.submit(task("echo")).unwrap());
    for id in ids {
        assert_eq!(coordinator.wait(id).await.unwrap().state, TaskState::Succeeded);
    }
    let mut devices = executor.running.lock().unwrap().clone();
    devices.sort_unstable();
    assert_eq!(devices, [0, 1]);
    let worker = &coordinator.workers()[0];
    let names: Vec<&str> = worker.devices.iter().map(|d| d.device.as_str()).collect();
    assert_eq!((worker.slots, names), (2, vec!["opencl:0", "opencl:1"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_answers_for_a_worker_that_does_not() {
    let (coordinator, pki) = coordinator().await;
    let (stuck, quick) = (Echo::shut(), Echo::open());
    let _a = Worker::start(&coordinator, &pki, "a", 1, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    let spec = TaskSpec { hedge_after: Some(Duration::from_millis(100)), ..task("echo") };
    let id = coordinator.submit(spec).unwrap();
    eventually("the first attempt begins", || {
        (stuck.begun.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    let _b = Worker::start(&coordinator, &pki, "b", 1, &quick);
    let record = coordinator.wait(id).await.unwrap();
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
    assert_eq!(record.worker.map(|w| w.to_string()), Some("b".to_owned()));
    assert_eq!(coordinator.stats().hedges, 1);
    let why = coordinator.explain(id).await.unwrap();
    assert!(why.iter().any(|(_, what)| what.starts_with("rival attempt 2")), "{why:?}");
    stuck.let_go();
}
