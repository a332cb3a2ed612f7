//! The interface between the cluster and the code that executes models.

mod error;
mod status;

pub use error::{ExecError, ExecErrorKind};
pub use status::{DeviceStatus, ExecutorStatus, UnusedDevice};

use crate::net::transfer::models::ModelCache;
use crate::run_trace::NodeTime;
use crate::task::ModelRef;
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A request that a run end early. Clones share the request, which is never withdrawn.
///
/// ```
/// use lgp_distributed::Stop;
/// let stop = Stop::new();
/// let seen_by_the_run = stop.clone();
/// assert!(!seen_by_the_run.is_stopped());
/// stop.stop();
/// assert!(seen_by_the_run.is_stopped());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// A request that is not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks every run that was given this request to end.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// The same request, which also takes effect when `time` has passed.
    #[must_use]
    pub(crate) fn within(&self, time: Duration) -> Self {
        Self { asked: Arc::clone(&self.asked), deadline: Instant::now().checked_add(time) }
    }

    /// Whether the run should end. The check costs one load, and with a deadline a reading of the
    /// clock, so an executor may call it often.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let is_late = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.asked.load(Ordering::SeqCst) || is_late()
    }

    /// The flag, true once the request is made, and the deadline at which the request takes effect
    /// anyway. They are for runtimes that poll a flag of their own.
    #[must_use]
    pub fn parts(&self) -> (Arc<AtomicBool>, Option<Instant>) {
        (Arc::clone(&self.asked), self.deadline)
    }
}

/// Runs models for a worker. All methods are called on blocking threads, several at a time.
///
/// A worker has one device or several; `device` is a position in [`ExecutorStatus::devices`],
/// whose number and order never change.
pub trait Executor: Send + Sync + 'static {
    /// Loads a model. Loading a model that is already loaded is not an error.
    ///
    /// # Errors
    /// [`ExecErrorKind::ModelNotFound`], or [`ExecErrorKind::Unavailable`] when it does not fit.
    fn load(&self, device: usize, model: &ModelRef) -> Result<(), ExecError>;

    /// The memory of the device that a loaded model takes, in bytes, where that is known. The
    /// placement of models uses it.
    fn footprint(&self, _device: usize, _model: &ModelRef) -> Option<u64> {
        None
    }

    /// Unloads a model. Unknown models are ignored.
    fn unload(&self, device: usize, model: &ModelRef);

    /// Runs a model once. Tasks report its time as `model_ms`.
    ///
    /// The run checks `stop` as often as it can and ends soon after the request. A run that does
    /// not end keeps its place on the device.
    ///
    /// # Errors
    /// [`ExecError`]; [`ExecErrorKind::Stopped`] if the run was asked to end. Only
    /// [`ExecErrorKind::Unavailable`] is retried, on another worker or later.
    fn execute(
        &self,
        device: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError>;

    /// Runs a model for several tasks at once, whose inputs have the same names, types and shapes.
    /// Returns one result per task, in order; one failed task does not fail the others. `stop`
    /// applies to all of them.
    ///
    /// Each task reports the time of the whole call as `model_ms`. The worker calls it only where
    /// [`WorkerConfig::batch_max`](crate::WorkerConfig::batch_max), or the maximum of the model's
    /// [`Batching`](crate::Batching), is greater than 1. The default implementation runs the tasks
    /// one after another. After a panic the worker runs them one by one with [`Executor::execute`].
    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        batch.iter().map(|inputs| self.execute(device, model, inputs, stop)).collect()
    }

    /// Runs tasks like [`Executor::execute`] and [`Executor::execute_batch`], and reports the times
    /// of the run's nodes for a trace. The default implementation reports no nodes.
    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        let results = match batch {
            [one] => vec![self.execute(device, model, one, stop)],
            many => self.execute_batch(device, model, many, stop),
        };
        (results, Vec::new())
    }

    /// Whether a run only computes on the calling thread: the model is loaded, and no driver is
    /// involved that could hang. Brief runs of this kind run on the thread that serves the
    /// coordinator.
    fn is_at_hand(&self, _device: usize, _model: &ModelRef) -> bool {
        false
    }

    /// Whether the process has to be replaced, because a device works again only in a new one. Once
    /// true, this stays true: the worker begins no more runs, and ends with
    /// [`Error::MustRestart`](crate::Error::MustRestart). It is asked often and must return at once.
    fn must_restart(&self) -> bool {
        false
    }

    /// The state that each heartbeat carries. It must return within milliseconds.
    fn status(&self) -> ExecutorStatus;

    /// The cache for models fetched from the coordinator, if this executor does not share the
    /// coordinator's files. Missing models are then fetched before they are loaded or executed.
    fn cache(&self) -> Option<&dyn ModelCache> {
        None
    }
}
