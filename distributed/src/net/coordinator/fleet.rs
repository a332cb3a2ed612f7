//! The workers, the models that they should have, and the strategy that chooses among them.

use super::Coordinator;
use crate::error::{Error, Result};
use crate::executor::ExecError;
use crate::proto::balance;
use crate::proto::core::Core;
use crate::proto::core::readiness::ModelReadiness;
use crate::proto::models::ModelNeeds;
use crate::task::{ModelRef, TaskId};
use crate::worker_info::{Stats, Traffic, WorkerId, WorkerInfo, WorkerState};
use std::time::Duration;

/// Time for work that was asked to stop: a run has one second, a worker's process some more.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Coordinator {
    /// Every worker, by name; lost ones stay listed for ten minutes.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerInfo> {
        self.shared.read(Core::workers)
    }

    /// One worker.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`].
    pub fn worker(&self, id: &str) -> Result<WorkerInfo> {
        self.workers().into_iter().find(|w| w.id.as_str() == id).ok_or_else(|| unknown(id))
    }

    /// Asks a worker to finish its tasks and leave.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`], also for a lost one.
    pub fn shutdown_worker(&self, id: &str) -> Result<()> {
        let found = self.shared.with(|core, _| core.drain_worker(id));
        if found { Ok(()) } else { Err(unknown(id)) }
    }

    /// Asks a worker to leave, and waits until it has left. Tasks that it still holds after `limit`
    /// go to other workers: the worker is asked to stop their runs, and its process is ended if a
    /// run does not stop. Returns these tasks.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`], also for a lost one; [`Error::Stopped`].
    pub async fn drain_worker(&self, id: &str, limit: Duration) -> Result<Vec<TaskId>> {
        self.shutdown_worker(id)?;
        let gone = || self.until(|core, _| (!core.is_known(id)).then_some(()));
        if let Ok(left) = tokio::time::timeout(limit, gone()).await {
            return left.map(|()| Vec::new());
        }
        let ended = self.shared.with(|core, now| core.end_work(now, id));
        // The worker has left by then: a run that does not stop has its process ended.
        let _ = tokio::time::timeout(END_TIMEOUT, gone()).await;
        Ok(ended)
    }

    /// Puts a worker's devices that were taken out back to work; returns their names.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`].
    pub fn enable_worker(&self, id: &str) -> Result<Vec<String>> {
        self.shared.with(|core, now| core.enable_worker(now, id)).ok_or_else(|| unknown(id))
    }

    /// For a supervisor that saw a worker's process end: the worker's tasks are retried at once,
    /// instead of after two seconds of silence.
    pub fn worker_exited(&self, id: &str) {
        self.shared.with(|core, now| core.worker_exited(now, id));
    }

    /// Resolves once at least `count` workers are ready.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn wait_for_workers(&self, count: usize) -> Result<()> {
        let ready = |core: &Core, now| {
            let workers = core.workers(now);
            let ready = workers.iter().filter(|w| w.state == WorkerState::Ready).count();
            (ready >= count).then_some(())
        };
        self.until(ready).await
    }

    /// Makes every device with room load the model, also devices of workers that join later; where
    /// no device has room, idle models are evicted from one. Returns the outcome at each worker
    /// that was to load the model; a worker that failed gets no tasks of the model. A model that
    /// was evicted from a device comes back when its tasks need it.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn load(&self, model: ModelRef) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        self.load_where(model, ModelNeeds::default()).await
    }

    /// The same for a model with requirements on its devices.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn load_where(
        &self,
        model: ModelRef,
        needs: ModelNeeds,
    ) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        self.shared.with(|core, now| core.load(now, &model, needs));
        self.until(|core, _| core.load_report(&model)).await
    }

    /// The outcome of loading a model at each worker, as [`Coordinator::load`] returns it, without
    /// making any worker load it.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn loaded(&self, model: &ModelRef) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        self.until(|core, _| core.load_report(model)).await
    }

    /// Whether no device of a worker is about to load a model; false for an unknown worker.
    #[must_use]
    pub fn is_settled(&self, worker: &str) -> bool {
        self.shared.read(|core, _| core.is_settled(worker))
    }

    /// Replaces a loaded model's requirements on its devices; ignores other models.
    pub fn set_needs(&self, model: &ModelRef, needs: ModelNeeds) {
        self.shared.with(|core, now| core.set_needs(now, model, needs));
    }

    /// Whether a loaded model is on no device because other models need the room: it comes back
    /// when a task needs it.
    #[must_use]
    pub fn is_parked(&self, model: &ModelRef) -> bool {
        self.shared.read(|core, _| core.is_parked(model))
    }

    /// Why no ready worker can load a model; `None` where one can, or may be able to later.
    #[must_use]
    pub fn load_failure(&self, model: &ModelRef) -> Option<ExecError> {
        self.shared.read(|core, _| core.load_failure(model))
    }

    /// Whether a model can be used now. Looks at this model alone, so each request may ask.
    #[must_use]
    pub fn readiness(&self, model: &ModelRef) -> ModelReadiness {
        self.shared.read(|core, _| core.readiness(model))
    }

    /// Ready workers that have a model, by name.
    #[must_use]
    pub fn workers_with(&self, model: &ModelRef) -> Vec<WorkerId> {
        self.shared.read(|core, _| core.workers_with(model))
    }

    /// Whether a worker is ready and, if the cluster should have models, a ready worker has one.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.shared.read(|core, _| core.is_serving())
    }

    /// Makes every worker unload the model.
    pub fn unload(&self, model: &ModelRef) {
        self.shared.with(|core, now| core.unload(now, model));
    }

    /// Unloads models and holds back their tasks that have not begun until the model is loaded
    /// again; after [`Coordinator::unload`], such tasks make workers load the model.
    pub fn withdraw(&self, models: &[ModelRef]) {
        self.shared.with(|core, now| models.iter().for_each(|model| core.withdraw(now, model)));
    }

    /// Whether tasks of a model wait because it was withdrawn.
    #[must_use]
    pub fn is_withdrawn(&self, model: &ModelRef) -> bool {
        self.shared.read(|core, _| core.is_withdrawn(model))
    }

    /// Withdraws models, and waits until no task runs them any more. Runs that take longer than
    /// `limit` are ended, and their tasks are returned. These tasks wait, like tasks that have not
    /// begun, until the model is loaded again.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn unload_within(&self, models: &[ModelRef], limit: Duration) -> Result<Vec<TaskId>> {
        self.withdraw(models);
        let runs = |core: &Core| models.iter().map(|m| core.count_runs_of(m)).sum::<usize>();
        let idle = || self.until(|core, _| (runs(core) == 0).then_some(()));
        if let Ok(idle) = tokio::time::timeout(limit, idle()).await {
            return idle.map(|()| Vec::new());
        }
        let end = |core: &mut Core, now| {
            models.iter().flat_map(|model| core.end_runs_of(now, model)).collect()
        };
        let ended = self.shared.with(end);
        // The runs have ended by then: a run that does not stop has its process ended.
        let _ = tokio::time::timeout(END_TIMEOUT, idle()).await;
        Ok(ended)
    }

    /// Models that the cluster should have.
    #[must_use]
    pub fn models(&self) -> Vec<ModelRef> {
        self.shared.read(|core, _| core.models())
    }

    /// Totals.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared_buffers =
            self.lender.as_ref().map(|lender| lender.buffers()).unwrap_or_default();
        Stats { shared_buffers, ..self.shared.read(Core::stats) }
    }

    /// Traffic between this coordinator and the workers that are connected now.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic()
    }

    /// The balancing strategy in use.
    #[must_use]
    pub fn balancing(&self) -> &'static str {
        self.shared.read(|core, _| core.balancing())
    }

    /// Switches the balancing strategy, for tasks that are not yet dispatched.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`], with the names that exist.
    pub fn set_balancing(&self, name: &str) -> Result<()> {
        let strategy = balance::by_name(name)?;
        self.shared.with(|core, _| core.set_balancing(strategy));
        Ok(())
    }
}

fn unknown(id: &str) -> Error {
    Error::UnknownWorker { id: id.chars().take(64).collect() }
}
