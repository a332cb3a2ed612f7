//! Coordinators and workers in one process, for tests.

use lgp_distributed::{
    Coordinator, CoordinatorConfig, DeviceStatus, ExecError, Executor, ExecutorStatus, ModelRef,
    NodeTime, Pki, Result, Stop, TaskSpec, WorkerConfig, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Returns its inputs, once its gate is open.
#[derive(Default)]
pub(crate) struct Echo {
    /// The number of executions begun.
    pub(crate) begun: AtomicUsize,
    /// The models of the executions begun, in order.
    pub(crate) order: Mutex<Vec<String>>,
    /// The sizes of their batches.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// The number of requests to load a model.
    pub(crate) loads: AtomicUsize,
    loaded: Mutex<Vec<ModelRef>>,
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Echo {
    /// An executor that answers at once.
    pub(crate) fn open() -> Arc<Self> {
        let echo = Self::default();
        echo.let_go();
        Arc::new(echo)
    }

    /// An executor that answers nothing before [`Echo::let_go`].
    pub(crate) fn shut() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn let_go(&self) {
        *self.gate.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Executions that begin from now on wait for the next [`Echo::let_go`].
    pub(crate) fn shut_again(&self) {
        *self.gate.lock().unwrap() = false;
    }
}

impl Executor for Echo {
    fn load(&self, _: usize, model: &ModelRef) -> Result<(), ExecError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        match model.name.as_str() {
            "missing" => Err(ExecError::model_not_found("no such model")),
            _ => {
                self.loaded.lock().unwrap().push(model.clone());
                Ok(())
            }
        }
    }

    fn unload(&self, _: usize, model: &ModelRef) {
        self.loaded.lock().unwrap().retain(|m| m != model);
    }

    fn execute(
        &self,
        _: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.order.lock().unwrap().push(model.name.clone());
        match model.name.as_str() {
            "bad-input" => return Err(ExecError::bad_input("input \"x\" has rank 1, expected 4")),
            "panics" => panic!("on purpose"),
            "brief" => std::thread::sleep(Duration::from_millis(3)),
            "exhausted" => return Err(ExecError::unavailable("out of memory")),
            _ => {}
        }
        let gate = self.gate.lock().unwrap();
        drop(self.opened.wait_while(gate, |open| !*open).unwrap());
        Ok(inputs.to_vec())
    }

    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        self.batches.lock().unwrap().push(batch.len());
        batch.iter().map(|inputs| self.execute(device, model, inputs, stop)).collect()
    }

    /// Reports more nodes than are kept.
    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        let (op, name) = ("C".repeat(64), "n".repeat(64));
        let node = |at| NodeTime { op: op.clone(), name: name.clone(), start_ns: at, took_ns: 1 };
        (self.execute_batch(device, model, batch, stop), (0..512).map(node).collect())
    }

    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::of(DeviceStatus {
            device: "cpu:0".into(),
            backend: "cpu".into(),
            models: self.loaded.lock().unwrap().clone(),
            ..DeviceStatus::default()
        })
    }
}

/// An executor with the same run for every model: a function of the inputs.
pub(crate) struct Runs<F>(pub(crate) F);

impl<F: Fn(&[NamedTensor]) -> Vec<NamedTensor> + Send + Sync + 'static> Executor for Runs<F> {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Ok(self.0(inputs))
    }
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::default()
    }
}

/// A worker on a runtime of its own.
pub(crate) struct Worker {
    runtime: Option<tokio::runtime::Runtime>,
    stop: Option<oneshot::Sender<()>>,
    done: JoinHandle<Result<()>>,
}

impl Worker {
    pub(crate) fn start(
        coordinator: &Coordinator,
        pki: &Pki,
        name: &str,
        slots: u32,
        executor: &Arc<impl Executor>,
    ) -> Self {
        let identity = pki.issue_worker(name).unwrap();
        Self::with(WorkerConfig::new(coordinator.quic_addr(), identity, slots), executor)
    }

    pub(crate) fn with(config: WorkerConfig, executor: &Arc<impl Executor>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            // Dropping the handle without a stop must not stop the worker.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let executor: Arc<dyn Executor> = Arc::clone(executor) as _;
        let done = runtime.spawn(run_worker(config, executor, shutdown));
        Self { runtime: Some(runtime), stop: Some(stop), done }
    }

    /// Asks for an orderly stop and waits for it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.take().unwrap().send(()).unwrap();
        self.ended().await
    }

    /// Waits until the worker ends by itself.
    pub(crate) async fn ended(mut self) -> Result<()> {
        let ended = tokio::time::timeout(Duration::from_secs(20), &mut self.done);
        ended.await.expect("the worker ends").expect("no panic")
    }

    /// Stops everything at once without a farewell or more packets, like a killed process.
    pub(crate) fn kill(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.halt();
    }
}

pub(crate) fn config() -> CoordinatorConfig {
    CoordinatorConfig { quic_addr: "127.0.0.1:0".parse().unwrap(), ..Default::default() }
}

pub(crate) async fn coordinator() -> (Coordinator, Pki) {
    let pki = Pki::generate().unwrap();
    (Coordinator::start(config(), &pki).await.unwrap(), pki)
}

pub(crate) fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: "00".repeat(32) }
}

pub(crate) fn task(name: &str) -> TaskSpec {
    let x = Tensor::from_slice([3], &[1f32, 2., 3.]).unwrap();
    TaskSpec::new(model(name), vec![NamedTensor::new("x", x)])
}

/// Polls until `look` finds something.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} did not happen within 10 s");
}
