//! What a worker of the cluster runs: inference sessions of the models in a repository.

use crate::joined::Joins;
use lgp_compute::device::Accelerator;
use lgp_distributed::{DeviceStatus, ExecError, Executor, ExecutorStatus, ModelCache, ModelRef};
use lgp_hal::{DeviceId, Monitor, ProbeOptions};
use lgp_inference::{Error as ModelError, Repository, Session, SessionOptions, ValueSpec};
use lgp_memory::{Dim, Error as TensorError, NamedTensor, Shape, TensorView};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Runs the models of a [`Repository`] for [`run_worker`](crate::run_worker).
///
/// Each loaded model has one session, shared by all tasks. A model that a task names and that is
/// not loaded is loaded first. Models stay loaded until they are unloaded. Tasks that a worker gives
/// it together run as one batch by [`Session::run_batch`] where the model takes batches and its
/// first one gave what its tasks gave alone, up to the rounding of sums.
///
/// ```
/// use lgp_sdk::{Executor, ModelExecutor, Repository, SessionOptions};
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
    sessions: RwLock<BTreeMap<ModelRef, Arc<Session>>>,
    /// The memory that loaded models take.
    footprints: RwLock<BTreeMap<ModelRef, u64>>,
    /// What all models may take together; `None` for what the device has.
    memory_bytes_max: Option<u64>,
    monitor: Mutex<Monitor>,
    /// What models are loaded for.
    accelerator: RwLock<Option<Accelerator>>,
    /// Held while a model loads, so that two tasks do not load the same.
    loading: Mutex<()>,
    joins: Joins,
    /// Bytes that fetched models may take; `None` where the repository is the coordinator's own.
    cache_bytes_max: Option<u64>,
}

impl ModelExecutor {
    /// An executor on an opened device, or on the processor where there is none, with nothing
    /// loaded yet; every session gets `options`.
    #[must_use]
    pub fn new(
        repository: Repository,
        accelerator: Option<Accelerator>,
        options: SessionOptions,
    ) -> Self {
        let device = accelerator.as_ref().map_or(DeviceId::CPU, Accelerator::id);
        let monitor = Mutex::new(Monitor::new(device, ProbeOptions::default()));
        let (sessions, footprints) = (RwLock::default(), RwLock::default());
        let accelerator = RwLock::new(accelerator);
        let (loading, joins, cache_bytes_max) = (Mutex::default(), Joins::default(), None);
        Self {
            repository,
            device,
            options,
            sessions,
            footprints,
            memory_bytes_max: None,
            monitor,
            accelerator,
            loading,
            joins,
            cache_bytes_max,
        }
    }

    /// The same executor for a worker that does not share its coordinator's files: models are fetched
    /// from there, and the repository keeps up to `cache_bytes_max` of them by their digests.
    #[must_use]
    pub fn fetching(self, cache_bytes_max: u64) -> Self {
        Self { cache_bytes_max: Some(cache_bytes_max), ..self }
    }

    /// The same executor with so many bytes for models, of which one that does not fit is refused;
    /// on the processor, which has no memory of its own, there is no other limit.
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

    fn session(&self, model: &ModelRef) -> Result<Arc<Session>, ExecError> {
        if let Some(session) = self.loaded(model) {
            return Ok(session);
        }
        let _turn = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another task may have loaded it while this one waited for its turn.
        if let Some(session) = self.loaded(model) {
            return Ok(session);
        }
        let session = Arc::new(self.open(model, self.accelerator())?);
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

    /// What loaded models take, as far as it is known.
    fn taken_bytes(&self) -> u64 {
        let footprints = self.footprints.read().unwrap_or_else(PoisonError::into_inner);
        footprints.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn open(
        &self,
        model: &ModelRef,
        accelerator: Option<Accelerator>,
    ) -> Result<Session, ExecError> {
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
        tracing::info!(%model, "loading");
        let parsed = self.repository.load(&entry).map_err(|e| failure(&e))?;
        crate::session(parsed, self.options, accelerator).map_err(|e| failure(&e))
    }

    /// Opens a device again that was lost: all that was loaded for it went with its memory.
    fn reopen(&self, lost: &Session) {
        let _turn = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have noticed it first.
        if !sessions.values().any(|session| std::ptr::eq(&**session, lost)) {
            return;
        }
        sessions.clear();
        self.footprints.write().unwrap_or_else(PoisonError::into_inner).clear();
        let Some(lost) = self.accelerator() else { return };
        match lost.reopened() {
            Ok(opened) => {
                let mut accelerator =
                    self.accelerator.write().unwrap_or_else(PoisonError::into_inner);
                *accelerator = Some(opened);
            }
            // The next task finds it lost again, and tries again.
            Err(error) => tracing::error!(device = %self.device, %error, "cannot be reopened"),
        }
    }
}

impl std::fmt::Debug for ModelExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelExecutor").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Executor for ModelExecutor {
    fn load(&self, _: usize, model: &ModelRef) -> Result<(), ExecError> {
        self.session(model).map(|_| ())
    }

    fn footprint(&self, _: usize, model: &ModelRef) -> Option<u64> {
        let footprints = self.footprints.read().unwrap_or_else(PoisonError::into_inner);
        footprints.get(model).copied()
    }

    fn unload(&self, _: usize, model: &ModelRef) {
        self.footprints.write().unwrap_or_else(PoisonError::into_inner).remove(model);
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(model);
        self.joins.forget(model);
    }

    fn execute(
        &self,
        _: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, ExecError> {
        let session = self.session(model)?;
        let views: Vec<(&str, TensorView<'_>)> =
            inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
        session.run(&views).map_err(|error| {
            if error.is_device_lost() {
                tracing::error!(device = %self.device, %error, "opening the device again");
                self.reopen(&session);
            }
            failure(&error)
        })
    }

    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        let session = self.session(model).ok();
        match session.and_then(|session| self.joins.run(model, &session, batch)) {
            Some(answers) => answers.into_iter().map(Ok).collect(),
            // Each then has its own result, or its own failure.
            None => batch.iter().map(|inputs| self.execute(device, model, inputs)).collect(),
        }
    }

    fn cache(&self) -> Option<&dyn ModelCache> {
        self.cache_bytes_max.map(|_| self as &dyn ModelCache)
    }

    fn status(&self) -> ExecutorStatus {
        let accelerator = self.accelerator();
        let (telemetry, family) = {
            let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
            (monitor.read(), monitor.family().unwrap_or_default())
        };
        let taken = self.memory_bytes_max.map(|_| self.taken_bytes());
        let limit = accelerator.as_ref().map(|it| it.memory_bytes() as u64);
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        ExecutorStatus::of(DeviceStatus {
            device: self.device.to_string(),
            backend: self.device.backend.to_string(),
            models: sessions.keys().cloned().collect(),
            family: family.to_owned(),
            vram_used_bytes: accelerator
                .as_ref()
                .map(|it| it.pool().stats().reserved_bytes as u64)
                .or(taken),
            vram_total_bytes: match (limit, self.memory_bytes_max) {
                (Some(device), Some(set)) => Some(device.min(set)),
                (device, set) => device.or(set),
            },
            utilisation: telemetry.load_percent.and_then(share),
            power_w: telemetry.power_watts.map(|watts| watts as f32),
        })
    }
}

/// A percentage as a share of one.
fn share(percent: u64) -> Option<f32> {
    let percent = u16::try_from(percent).ok()?;
    Some(f32::from(percent.min(100)) / 100.0)
}

/// The device memory that a model takes between and during runs with the shapes that it states,
/// with 1 for dimensions that callers choose; on the processor, all of its memory. `None` where only
/// a run knows the sizes.
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

/// Whether it is the caller's fault, the model's, or a matter of the moment.
fn failure(error: &ModelError) -> ExecError {
    let message = error.to_string();
    match error {
        ModelError::UnknownInput { .. }
        | ModelError::MissingInput { .. }
        | ModelError::DuplicateInput { .. }
        | ModelError::InputDType { .. }
        | ModelError::InputShape { .. } => ExecError::bad_input(message),
        ModelError::UnknownModel { .. }
        | ModelError::UnknownVersion { .. }
        | ModelError::Digest { .. } => ExecError::model_not_found(message),
        ModelError::Memory(TensorError::OutOfMemory { .. }) | ModelError::Threads { .. } => {
            ExecError::unavailable(message)
        }
        error if error.is_device_lost() => ExecError::unavailable(message),
        _ => ExecError::failed(message),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lgp_distributed::ExecErrorKind;
    use lgp_inference::{Entry, GraphBuilder};
    use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

    /// A model `y = relu(x)` of f32 `[n]` in a repository of its own.
    pub(crate) fn repository() -> (tempfile::TempDir, Repository, ModelRef) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ty =
            TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Symbol("n".into())])) };
        let mut builder = GraphBuilder::new("relu");
        let x = builder.input("x", ty.clone());
        let y = builder.node("Relu", &[x], []);
        builder.output("y", y, ty);
        let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
        let file = folder.path().join("relu.onnx");
        std::fs::write(&file, bytes).expect("ours");
        let repository = Repository::open(folder.path().join("models")).expect("ours");
        let entry = repository.add("relu", &file).expect("a good model");
        let model = ModelRef {
            name: entry.name.clone(),
            version: entry.version,
            sha256: entry.sha256.clone(),
        };
        (folder, repository, model)
    }

    pub(crate) fn input(name: &str, values: &[f32]) -> Vec<NamedTensor> {
        vec![NamedTensor::new(name, Tensor::from_slice([values.len()], values).expect("fits"))]
    }

    fn executor(repository: Repository) -> ModelExecutor {
        let options = SessionOptions::with_threads(1);
        ModelExecutor::new(repository, None, options)
    }

    #[test]
    fn models_load_run_and_unload() {
        let (_folder, repository, model) = repository();
        let executor = executor(repository);
        let outputs = executor.execute(0, &model, &input("x", &[-1., 2.])).expect("a good task");
        assert_eq!(outputs[0].tensor.as_slice::<f32>().expect("f32"), [0., 2.]);
        assert_eq!(executor.status().devices[0].models, std::slice::from_ref(&model));
        executor.unload(0, &model);
        assert!(executor.status().devices[0].models.is_empty());
    }

    #[test]
    fn failures_have_the_right_kind() {
        let (_folder, repository, model) = repository();
        let executor = executor(repository);
        let other = |name: &str, version, sha256: &str| ModelRef {
            name: name.to_owned(),
            version,
            sha256: sha256.to_owned(),
        };
        for (model, input, kind) in [
            (model.clone(), input("z", &[1.]), ExecErrorKind::BadInput),
            (model.clone(), Vec::new(), ExecErrorKind::BadInput),
            (other("nope", 1, &model.sha256), input("x", &[1.]), ExecErrorKind::ModelNotFound),
            (other("relu", 9, &model.sha256), input("x", &[1.]), ExecErrorKind::ModelNotFound),
            (other("relu", 1, "00"), input("x", &[1.]), ExecErrorKind::ModelNotFound),
        ] {
            let error = executor.execute(0, &model, &input).expect_err("a bad task");
            assert_eq!(error.kind, kind, "{error}");
        }
    }

    /// Models over rows of two: of `y = relu(x)` rows know nothing of each other, of
    /// `y = x - mean(x)` over all rows they do, which nothing in its types says.
    fn rows(mixed: bool) -> (tempfile::TempDir, ModelExecutor, ModelRef) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shape = Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]));
        let ty = TensorType { dtype: DType::F32, shape };
        let mut builder = GraphBuilder::new("rows");
        let x = builder.input("x", ty.clone());
        let y = match mixed {
            false => builder.node("Relu", &[x], []),
            true => {
                let axis = Tensor::from_slice([1], &[0i64]).expect("fits");
                let axis = builder.initializer("axis", axis);
                let mean = builder.node("ReduceMean", &[x, axis], []);
                builder.node("Sub", &[x, mean], [])
            }
        };
        builder.output("y", y, ty);
        let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
        let file = folder.path().join("rows.onnx");
        std::fs::write(&file, bytes).expect("ours");
        let repository = Repository::open(folder.path().join("models")).expect("ours");
        let entry = repository.add("rows", &file).expect("a good model");
        let Entry { name, version, sha256, .. } = entry;
        (folder, executor(repository), ModelRef { name, version, sha256 })
    }

    fn row(a: f32, b: f32) -> Vec<NamedTensor> {
        vec![NamedTensor::new("x", Tensor::from_slice([1, 2], &[a, b]).expect("fits"))]
    }

    #[test]
    fn batches_give_what_their_tasks_give_alone() {
        for mixed in [false, true] {
            let (_folder, executor, model) = rows(mixed);
            let bad = vec![NamedTensor::new("z", Tensor::from_slice([1], &[1f32]).expect("fits"))];
            for batch in [
                // The same rows, of which the mean is what each is: that proves nothing.
                vec![row(1., -2.), row(1., -2.)],
                vec![row(1., -2.), row(3., 4.), row(-5., 6.)],
                vec![row(7., -8.), row(-9., 0.)],
                vec![row(1., 2.), bad.clone(), row(3., -4.)],
            ] {
                let joined = executor.execute_batch(0, &model, &batch);
                let alone: Vec<_> =
                    batch.iter().map(|inputs| executor.execute(0, &model, inputs)).collect();
                assert_eq!(joined, alone, "mixed: {mixed}");
                assert!(joined.iter().filter(|result| result.is_err()).count() <= 1);
            }
        }
    }

    #[test]
    fn tasks_that_are_all_the_same_tell_whether_rows_depend_on_one_another() {
        for mixed in [false, true] {
            let (_folder, executor, model) = rows(mixed);
            // Nothing in them is different, in whatever order.
            let answers = executor.execute_batch(0, &model, &[row(1., 1.), row(1., 1.)]);
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            assert_eq!(executor.joins.known(&model), None, "mixed: {mixed}");
            let batch = [row(1., -2.), row(1., -2.), row(1., -2.)];
            let answers = executor.execute_batch(0, &model, &batch);
            let alone = executor.execute(0, &model, &batch[0]);
            assert_eq!(answers, vec![alone; 3], "mixed: {mixed}");
            assert_eq!(executor.joins.known(&model), Some(!mixed));
        }
    }

    #[test]
    fn a_swapped_file_is_not_loaded() {
        let (_folder, repository, model) = repository();
        let path = repository.get(&model.name, None).expect("added").path;
        let mut bytes = std::fs::read(&path).expect("ours");
        // An empty field that readers skip: the model means the same, but is another file.
        bytes.extend([0x32, 0]);
        std::fs::write(&path, bytes).expect("ours");
        let error = executor(repository).load(0, &model).expect_err("not what was registered");
        assert_eq!(error.kind, ExecErrorKind::ModelNotFound, "{error}");
        assert!(error.message.contains(&model.sha256), "{error}");
    }
}
