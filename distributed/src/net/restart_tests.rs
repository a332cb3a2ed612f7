//! Workers with a device that works again only in a new process: they give back what has not begun,
//! finish what runs on their other devices, and end, so that another process takes their place.

use crate::net::tests::coordinator;
use crate::net::worker::FINISH_TIMEOUT;
use crate::{
    Coordinator, DeviceStatus, Error, ExecError, Executor, ExecutorStatus, Identity, ModelRef,
    Result, Stop, TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState, WorkerConfig, run_worker,
};
use lgp_memory::NamedTensor;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(30);

/// An executor whose model `poison` ends its device, at a load or a run, and whose model `held` runs
/// until it is let go, whatever asks it to stop.
#[derive(Default)]
struct Fragile {
    devices: usize,
    lost: AtomicBool,
    runs: AtomicUsize,
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Fragile {
    fn with(devices: usize) -> Arc<Self> {
        Arc::new(Self { devices, ..Self::default() })
    }

    fn lose(&self) -> ExecError {
        self.lost.store(true, Ordering::SeqCst);
        ExecError::unavailable("the device is lost")
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn let_go(&self) {
        *self.gate.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

impl Executor for Fragile {
    fn load(&self, _: usize, model: &ModelRef) -> Result<(), ExecError> {
        if model.name == "poison" { Err(self.lose()) } else { Ok(()) }
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        match model.name.as_str() {
            "poison" => return Err(self.lose()),
            "held" => {
                let gate = self.gate.lock().expect("no panic");
                // A test that fails before it lets go ends all the same.
                let held = self.opened.wait_timeout_while(gate, 3 * LIMIT, |open| !*open);
                drop(held.expect("no panic"));
            }
            _ => {}
        }
        Ok(inputs.to_vec())
    }
    fn must_restart(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
    fn status(&self) -> ExecutorStatus {
        let device = |at| DeviceStatus { device: format!("cuda:{at}"), ..DeviceStatus::default() };
        ExecutorStatus { devices: (0..self.devices).map(device).collect(), unused: Vec::new() }
    }
}

/// A worker in this process, and the way to ask it to leave.
struct Running {
    leave: oneshot::Sender<()>,
    ended: JoinHandle<Result<()>>,
}

impl Running {
    fn start(coordinator: &Coordinator, identity: &Identity, executor: &Arc<Fragile>) -> Self {
        let config = WorkerConfig::new(coordinator.quic_addr(), identity.clone(), 1);
        let (leave, left) = oneshot::channel();
        let shutdown = async {
            // Dropping the handle does not stop the worker.
            if left.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let executor: Arc<dyn Executor> = Arc::clone(executor) as _;
        Self { leave, ended: tokio::spawn(run_worker(config, executor, shutdown)) }
    }

    async fn ended(self) -> Result<()> {
        let ended = tokio::time::timeout(LIMIT, self.ended).await;
        ended.expect("it ends in time").expect("no panic")
    }
}

fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: String::new() }
}

async fn finished(coordinator: &Coordinator, id: TaskId) -> TaskRecord {
    let record = tokio::time::timeout(LIMIT, coordinator.wait(id)).await;
    record.expect("it ends in time").expect("known")
}

fn submit(coordinator: &Coordinator, name: &str, max_attempts: u32) -> TaskId {
    let spec = TaskSpec { max_attempts, ..TaskSpec::new(model(name), Vec::new()) };
    coordinator.submit(spec).expect("room")
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let reached = tokio::time::timeout(LIMIT, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    reached.await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_is_given_back_and_runs_in_the_next_process() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let executor = Fragile::with(1);
    // All wait for the worker, and reach it together.
    let poison = submit(&coordinator, "poison", 1);
    let others: Vec<_> = (0..20).map(|_| submit(&coordinator, "sound", 1)).collect();
    let ended = Running::start(&coordinator, &identity, &executor).ended().await;
    assert!(matches!(ended, Err(Error::MustRestart)), "{ended:?}");
    assert_eq!(executor.runs(), 1, "nothing else began on the lost device");
    assert!(coordinator.workers().is_empty(), "it took its leave");
    // Its answer has arrived: the task used up its attempt, and does not end the next process.
    let record = finished(&coordinator, poison).await;
    let error = record.error.expect("the device was lost");
    assert_eq!((record.state, error.code), (TaskState::Failed, TaskErrorKind::Unavailable));
    let next = Running::start(&coordinator, &identity, &Fragile::with(1));
    for id in others {
        let record = finished(&coordinator, id).await;
        assert_eq!(record.state, TaskState::Succeeded, "{record:?}");
    }
    assert!(!next.ended.is_finished(), "its device is sound");
    next.ended.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_on_other_devices_are_finished_first() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let executor = Fragile::with(2);
    let held = submit(&coordinator, "held", 1);
    let worker = Running::start(&coordinator, &identity, &executor);
    until("it runs", || executor.runs() == 1).await;
    let poison = submit(&coordinator, "poison", 1);
    finished(&coordinator, poison).await;
    until("it leaves", || coordinator.stats().workers.draining == 1).await;
    assert!(!worker.ended.is_finished(), "a run is not over");
    executor.let_go();
    let record = finished(&coordinator, held).await;
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1), "{record:?}");
    let ended = worker.ended().await;
    assert!(matches!(ended, Err(Error::MustRestart)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_runs_in_the_next_process() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let executor = Fragile::with(2);
    let held = submit(&coordinator, "held", 1);
    let worker = Running::start(&coordinator, &identity, &executor);
    until("it runs", || executor.runs() == 1).await;
    let began = std::time::Instant::now();
    // A load ends the device as well as a run.
    coordinator.load(model("poison")).await.expect("the worker is there");
    let ended = worker.ended().await;
    assert!(matches!(ended, Err(Error::MustRestart)), "{ended:?}");
    assert!(began.elapsed() >= FINISH_TIMEOUT, "the run had its time: {:?}", began.elapsed());
    // Else the next process loads it too, and ends.
    coordinator.unload(&model("poison"));
    let next = Fragile::with(1);
    next.let_go();
    let next = Running::start(&coordinator, &identity, &next);
    // A loss of its worker is no failure of the task, which may fail only once.
    let record = finished(&coordinator, held).await;
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2), "{record:?}");
    executor.let_go();
    next.ended.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_told_to_leave_does_not_come_back() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let executor = Fragile::with(1);
    let held = submit(&coordinator, "held", 1);
    let Running { leave, ended } = Running::start(&coordinator, &identity, &executor);
    until("it runs", || executor.runs() == 1).await;
    leave.send(()).expect("it listens");
    until("it leaves", || coordinator.stats().workers.draining == 1).await;
    executor.lose();
    executor.let_go();
    let record = finished(&coordinator, held).await;
    assert_eq!(record.state, TaskState::Succeeded);
    let ended = tokio::time::timeout(LIMIT, ended).await.expect("in time").expect("no panic");
    assert!(ended.is_ok(), "{ended:?}");
}
