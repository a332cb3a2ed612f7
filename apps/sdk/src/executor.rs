//! The executor of a cluster's worker: inference sessions of the models in a repository.

use crate::sensors::Sensors;
use crate::turns::Turns;
use lgp_compute::Error as OpError;
use lgp_compute::device::Accelerator;
use lgp_distributed::{
    DeviceStatus, ExecError, Executor, ExecutorStatus, ModelCache, ModelRef, NodeTime, Stop,
};
use lgp_hal::{DeviceId, Error as DeviceError};
use lgp_inference::{
    Entry, Error as ModelError, NodeProfile, Profile, Repository, RunOptions, Session,
    SessionOptions, Stop as RunStop, ValueSpec,
};
use lgp_memory::{Dim, Error as TensorError, NamedTensor, Shape, TensorView};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Runs the models of a [`Repository`] for [`run_worker`](lgp_distributed::run_worker).
///
/// Each loaded model has one session, shared by all tasks. A task's model is loaded first if needed, and stays loaded
/// until it is unloaded. Tasks that a worker passes together run as one batch by [`Session::run_batch`], if the model
/// takes batches and its first batch gave the same results as its tasks alone, up to the rounding of sums.
///
/// A device that is lost is opened again, and its models are loaded again for the next tasks. Where its driver opens it
/// for a new process only, as CUDA does, [`run_worker`](lgp_distributed::run_worker) ends with
/// [`Error::MustRestart`](lgp_distributed::Error::MustRestart).
///
/// ```
/// use lgp_distributed::Executor;
/// use lgp_sdk::cluster::ModelExecutor;
/// use lgp_sdk::model::{Repository, SessionOptions};
///
/// let folder = tempfile::tempdir()?;
/// let repository = Repository::open(folder.path())?;
/// let executor = ModelExecutor::new(repository, None, SessionOptions::with_threads(1));
/// let device = &executor.status().devices[0];
/// assert_eq!(device.device, "cpu");
/// assert!(device.models.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ModelExecutor {
    repository: Repository,
    device: DeviceId,
    options: SessionOptions,
    /// Heartbeats read this map, so the lock is held for lookups only.
    sessions: RwLock<BTreeMap<ModelRef, Arc<Session>>>,
    /// The memory of each loaded model, in bytes, if known.
    footprints: RwLock<BTreeMap<ModelRef, u64>>,
    /// The most that all models may take together; `None` for the device's own limit.
    memory_bytes_max: Option<u64>,
    sensors: Sensors,
    /// The device that models are loaded for; `None` for the CPU.
    accelerator: RwLock<Option<Accelerator>>,
    /// Held while a model loads or the device is reopened, so that two tasks do not do it twice.
    loading: Turns,
    /// The device is lost, and works again only in a new process.
    given_up: AtomicBool,
    /// The most bytes of fetched models; `None` if the repository is the coordinator's own.
    cache_bytes_max: Option<u64>,
}

impl ModelExecutor {
    /// An executor on an opened device, or on the CPU for `None`, with nothing loaded yet; every session gets
    /// `options`.
    #[must_use]
    pub fn new(
        repository: Repository,
        accelerator: Option<Accelerator>,
        options: SessionOptions,
    ) -> Self {
        let device = accelerator.as_ref().map_or(DeviceId::CPU, Accelerator::id);
        let sensors = Sensors::new(device);
        let (sessions, footprints) = (RwLock::default(), RwLock::default());
        let accelerator = RwLock::new(accelerator);
        let (loading, cache_bytes_max) = (Turns::default(), None);
        Self {
            repository,
            device,
            options,
            sessions,
            footprints,
            memory_bytes_max: None,
            sensors,
            accelerator,
            loading,
            given_up: AtomicBool::new(false),
            cache_bytes_max,
        }
    }

    /// The executor of a worker that does not share its coordinator's files. It fetches models from the coordinator,
    /// and its repository keeps up to `cache_bytes_max` of them by their digests.
    #[must_use]
    pub fn fetching(self, cache_bytes_max: u64) -> Self {
        Self { cache_bytes_max: Some(cache_bytes_max), ..self }
    }

    /// Limits the bytes of all models; a model that does not fit is refused. On the CPU, which has no memory of its
    /// own, there is no other limit.
    #[must_use]
    pub fn within(self, memory_bytes_max: Option<u64>) -> Self {
        Self { memory_bytes_max, ..self }
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }

    pub(crate) fn cache_bytes_max(&self) -> Option<u64> {
        self.cache_bytes_max
    }

    pub(crate) fn is_loaded(&self, model: &ModelRef) -> bool {
        self.loaded(model).is_some()
    }

    /// Whether a loaded model has this digest.
    pub(crate) fn is_in_use(&self, sha256: &str) -> bool {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.keys().any(|model| model.sha256 == sha256)
    }

    fn loaded(&self, model: &ModelRef) -> Option<Arc<Session>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(model).map(Arc::clone)
    }

    fn accelerator(&self) -> Option<Accelerator> {
        self.accelerator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The session of a model, which is loaded first if needed.
    fn session(&self, model: &ModelRef, stop: &Stop) -> Result<Arc<Session>, ExecError> {
        if let Some(session) = self.loaded(model) {
            return Ok(session);
        }
        let turn = self.loading.take(|| stop.is_stopped());
        let _turn =
            turn.ok_or_else(|| ExecError::stopped("stopped before its model was loaded"))?;
        // Another task may have loaded the model while this one waited for its turn.
        if let Some(session) = self.loaded(model) {
            return Ok(session);
        }
        if self.must_restart() {
            let device = self.device;
            let what = format!("device {device} is lost and works again only in a new process");
            return Err(ExecError::unavailable(what));
        }
        let entry = self.entry(model)?;
        tracing::info!(%model, "loading");
        let accelerators = self.accelerator().into_iter().collect();
        let session = self
            .repository
            .load(&entry)
            .and_then(|loaded| Session::on_devices(loaded, self.options, accelerators))
            .map_err(|e| failure(&e))?;
        let session = Arc::new(session);
        let bytes = footprint(&session);
        self.check_room(model, bytes.unwrap_or(0))?;
        if let Some(bytes) = bytes {
            let mut footprints = self.footprints.write().unwrap_or_else(PoisonError::into_inner);
            footprints.insert(model.clone(), bytes);
        }
        self.sessions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(model.clone(), Arc::clone(&session));
        Ok(session)
    }

    fn check_room(&self, model: &ModelRef, bytes: u64) -> Result<(), ExecError> {
        let Some(limit) = self.memory_bytes_max else { return Ok(()) };
        let taken = self.taken_bytes();
        if taken.saturating_add(bytes) <= limit {
            return Ok(());
        }
        Err(ExecError::unavailable(format!(
            "model {model} takes {bytes} bytes, {taken} of {limit} are taken"
        )))
    }

    /// The memory of all loaded models, as far as known.
    fn taken_bytes(&self) -> u64 {
        let footprints = self.footprints.read().unwrap_or_else(PoisonError::into_inner);
        footprints.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn entry(&self, model: &ModelRef) -> Result<Entry, ExecError> {
        let entry = match self.cache_bytes_max {
            Some(_) => self.repository.get(&model.sha256, None),
            None => self.repository.get(&model.name, Some(model.version)),
        };
        let entry = entry.map_err(|e| failure(&e))?;
        if entry.sha256 != model.sha256 {
            return Err(ExecError::model_not_found(format!(
                "model {model} has digest {}, expected {}",
                entry.sha256, model.sha256
            )));
        }
        Ok(entry)
    }

    /// Runs a loaded model by `how`; reopens the device if the run lost it.
    fn run<T>(
        &self,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
        how: impl FnOnce(&Session, &[(&str, TensorView<'_>)], &RunStop) -> Result<T, ModelError>,
    ) -> Result<T, ExecError> {
        let session = self.session(model, stop)?;
        let views: Vec<(&str, TensorView<'_>)> =
            inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
        how(&session, &views, &run_stop(stop)).map_err(|error| {
            if error.is_device_lost() {
                tracing::error!(device = %self.device, %error, "opening the device again");
                self.reopen(&session, |lost| lost.map(|lost| lost.reopened()).transpose());
            }
            failure(&error)
        })
    }

    /// Runs tasks as one batch if that gives the same results; else runs them one by one, without profiling their
    /// nodes.
    fn run_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
        profile: Option<&mut Profile>,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        let session = self.session(model, stop).ok();
        let session = session.filter(|session| session.rows_are_independent());
        let stops = run_stop(stop);
        let options = RunOptions::new().until(&stops);
        let options = match profile {
            Some(profile) => options.trace(profile),
            None => options,
        };
        // Any failure may be that of a single task.
        match session.and_then(|session| session.run_batch_with(batch, options).ok()) {
            Some(answers) => answers.into_iter().map(Ok).collect(),
            // Each task then gets its own result or failure; after a stop, the failure says so.
            None => batch.iter().map(|inputs| self.execute(device, model, inputs, stop)).collect(),
        }
    }

    /// Opens the device anew by `open`, after a run that found it lost, unless another task has. All that was loaded
    /// went with its memory. `open` may take seconds, so it holds no lock that [`Executor::status`] reads.
    fn reopen(
        &self,
        lost: &Session,
        open: impl FnOnce(Option<Accelerator>) -> Result<Option<Accelerator>, OpError>,
    ) {
        let Some(_turn) = self.loading.take(|| false) else { return };
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if !sessions.values().any(|session| std::ptr::eq(&**session, lost)) {
            return;
        }
        let gone = std::mem::take(&mut *sessions);
        drop(sessions);
        self.footprints.write().unwrap_or_else(PoisonError::into_inner).clear();
        drop(gone);
        match open(self.accelerator()) {
            Ok(opened) => {
                let mut device = self.accelerator.write().unwrap_or_else(PoisonError::into_inner);
                *device = opened;
            }
            Err(error) => {
                tracing::error!(device = %self.device, %error, "cannot be reopened");
                // After any other refusal, the next task finds the device lost again and retries.
                if matches!(error, OpError::Device(DeviceError::NeedsRestart { .. })) {
                    self.given_up.store(true, Ordering::SeqCst);
                }
            }
        }
    }
}

impl std::fmt::Debug for ModelExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelExecutor").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The same stop request, as sessions take it.
fn run_stop(stop: &Stop) -> RunStop {
    let (asked, deadline) = stop.parts();
    let stop = RunStop::from(asked);
    match deadline {
        Some(deadline) => stop.or_at(deadline),
        None => stop,
    }
}

impl Executor for ModelExecutor {
    fn load(&self, _: usize, model: &ModelRef) -> Result<(), ExecError> {
        self.session(model, &Stop::new()).map(|_| ())
    }

    fn footprint(&self, _: usize, model: &ModelRef) -> Option<u64> {
        let footprints = self.footprints.read().unwrap_or_else(PoisonError::into_inner);
        footprints.get(model).copied()
    }

    fn unload(&self, _: usize, model: &ModelRef) {
        self.footprints.write().unwrap_or_else(PoisonError::into_inner).remove(model);
        let session = self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(model);
        // Freeing gigabytes takes time. No lock is held, so heartbeats do not wait.
        drop(session);
    }

    fn execute(
        &self,
        _: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        self.run(model, inputs, stop, |session, views, stop| {
            session.run_with(views, RunOptions::new().until(stop))
        })
    }

    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        self.run_batch(device, model, batch, stop, None)
    }

    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        let mut profile = Profile::default();
        let results = match batch {
            [one] => {
                let ran = self.run(model, one, stop, |session, views, stop| {
                    session.run_with(views, RunOptions::new().until(stop).trace(&mut profile))
                });
                vec![ran]
            }
            many => self.run_batch(device, model, many, stop, Some(&mut profile)),
        };
        (results, profile.nodes.into_iter().map(node_time).collect())
    }

    fn is_at_hand(&self, _: usize, model: &ModelRef) -> bool {
        self.accelerator().is_none() && self.loaded(model).is_some()
    }

    fn must_restart(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    fn cache(&self) -> Option<&dyn ModelCache> {
        self.cache_bytes_max.map(|_| self as &dyn ModelCache)
    }

    fn status(&self) -> ExecutorStatus {
        let accelerator = self.accelerator();
        let readings = self.sensors.read(accelerator.as_ref());
        let taken = self.memory_bytes_max.map(|_| self.taken_bytes());
        let limit = accelerator.as_ref().map(|it| it.memory_bytes() as u64);
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        ExecutorStatus::of(DeviceStatus {
            device: self.device.to_string(),
            name: self.sensors.name().to_owned(),
            driver: self.sensors.driver().to_owned(),
            backend: self.device.backend.to_string(),
            models: sessions.keys().cloned().collect(),
            family: self.sensors.family().to_owned(),
            vram_used_bytes: readings.memory_bytes.or(taken),
            vram_total_bytes: match (limit, self.memory_bytes_max) {
                (Some(device), Some(set)) => Some(device.min(set)),
                (device, set) => device.or(set),
            },
            utilisation: readings.telemetry.load_percent.and_then(share),
            power_w: readings.telemetry.power_watts.map(|watts| watts as f32),
            temperature_c: readings.telemetry.temperature_celsius.map(|degrees| degrees as f32),
        })
    }
}

fn node_time(node: NodeProfile) -> NodeTime {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (start_ns, took_ns) = (ns(node.start), ns(node.duration));
    NodeTime { op: node.op.to_owned(), name: node.name, start_ns, took_ns }
}

/// A percentage as a share from 0 to 1.
fn share(percent: u64) -> Option<f32> {
    let percent = u16::try_from(percent).ok()?;
    Some(f32::from(percent.min(100)) / 100.0)
}

/// The device memory that a model takes between and during runs, with 1 for each dimension that callers choose; on
/// the CPU, all of its memory. `None` if the sizes are known only during a run.
fn footprint(session: &Session) -> Option<u64> {
    fn shape(spec: &ValueSpec) -> Option<(&str, Shape)> {
        let dims = spec.ty.shape.as_ref()?.0.iter();
        let dims: Vec<usize> =
            dims.map(|dim| if let Dim::Known(n) = dim { *n } else { 1 }).collect();
        Some((&spec.name, Shape::from(dims)))
    }
    let shapes: Vec<(&str, Shape)> = session.inputs().iter().map(shape).collect::<Option<_>>()?;
    let bytes = match session.device_memory(&shapes).ok()? {
        Some(report) => report.resident_bytes + report.arena_bytes,
        None => session.memory(&shapes).ok()?.peak_bytes,
    };
    u64::try_from(bytes).ok()
}

/// Sorts a failure: the caller's fault, the model's, or a temporary condition.
fn failure(error: &ModelError) -> ExecError {
    let message = error.to_string();
    match error {
        ModelError::UnknownInput { .. }
        | ModelError::MissingInput { .. }
        | ModelError::DuplicateInput { .. }
        | ModelError::InputDType { .. }
        | ModelError::InputShape { .. } => ExecError::bad_input(message),
        ModelError::UnknownModel { .. } | ModelError::UnknownVersion { .. } => {
            ExecError::model_not_found(message)
        }
        // The client must not learn the path, so only the log has it.
        ModelError::Digest { path, given, expected } => {
            tracing::error!(path = %path.display(), given, expected, "a model's file has changed");
            let what =
                "the model's file is not the one that was registered; register it as a new version";
            ExecError::model_not_found(what)
        }
        ModelError::Memory(TensorError::OutOfMemory { .. }) | ModelError::Threads { .. } => {
            ExecError::unavailable(message)
        }
        ModelError::Stopped(_) => ExecError::stopped(message),
        error if error.is_device_lost() => ExecError::unavailable(message),
        ModelError::Node { source, .. } if is_of_the_graph(source) => ExecError::operator(message),
        _ => ExecError::failed(message),
    }
}

/// Whether an operator's error comes from the graph's inputs and attributes, not from the machine.
fn is_of_the_graph(error: &OpError) -> bool {
    match error {
        OpError::Invalid { .. } | OpError::Unsupported { .. } => true,
        OpError::Memory(error) => matches!(
            error,
            TensorError::DType { .. }
                | TensorError::ByteLength { .. }
                | TensorError::TooLarge { .. }
                | TensorError::Reshape { .. }
                | TensorError::BoolByte
                | TensorError::ElementByte { .. }
                | TensorError::Strings
                | TensorError::Packed { .. }
                | TensorError::OutOfMemory { .. }
                | TensorError::Permutation { .. }
                | TensorError::Broadcast { .. }
                | TensorError::Slice { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
