//! An executor for a worker with several devices.

use crate::executor::ModelExecutor;
use lgp_distributed::{
    BlobPart, ExecError, Executor, ExecutorStatus, ModelCache, ModelRef, NodeTime, Stop,
    UnusedDevice,
};
use lgp_memory::NamedTensor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Runs models on several devices of one machine. Each device has its own sessions and runs what the coordinator
/// sends to it.
///
/// ```
/// use lgp_distributed::Executor;
/// use lgp_sdk::cluster::{ModelExecutor, MultiExecutor};
/// use lgp_sdk::model::{Repository, SessionOptions};
///
/// let folder = tempfile::tempdir()?;
/// let device = || -> Result<ModelExecutor, Box<dyn std::error::Error>> {
///     let repository = Repository::open(folder.path())?;
///     Ok(ModelExecutor::new(repository, None, SessionOptions::with_threads(1)))
/// };
/// let both = MultiExecutor::new(device()?, vec![device()?]);
/// assert_eq!(both.status().devices.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MultiExecutor {
    first: ModelExecutor,
    others: Vec<ModelExecutor>,
    unused: OnceLock<Vec<UnusedDevice>>,
}

impl MultiExecutor {
    /// An executor for the devices in this order. If models are fetched, all devices share one repository, and the
    /// first executor fills it.
    #[must_use]
    pub fn new(first: ModelExecutor, others: Vec<ModelExecutor>) -> Self {
        Self { first, others, unused: OnceLock::new() }
    }

    /// Sets, once, the machine's unused devices and why they are unused. The next status reports them.
    pub fn set_unused(&self, unused: Vec<UnusedDevice>) {
        // A second call would set the same devices.
        let _ = self.unused.set(unused);
    }

    fn all(&self) -> impl Iterator<Item = &ModelExecutor> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn at(&self, device: usize) -> Result<&ModelExecutor, ExecError> {
        let missing = || {
            let count = self.others.len() + 1;
            ExecError::failed(format!("a task for device {device} of {count}"))
        };
        self.all().nth(device).ok_or_else(missing)
    }
}

impl Executor for MultiExecutor {
    fn load(&self, device: usize, model: &ModelRef) -> Result<(), ExecError> {
        self.at(device)?.load(0, model)
    }

    fn footprint(&self, device: usize, model: &ModelRef) -> Option<u64> {
        self.at(device).ok()?.footprint(0, model)
    }

    fn unload(&self, device: usize, model: &ModelRef) {
        if let Ok(at) = self.at(device) {
            at.unload(0, model);
        }
    }

    fn execute(
        &self,
        device: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        self.at(device)?.execute(0, model, inputs, stop)
    }

    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        match self.at(device) {
            Ok(at) => at.execute_batch(0, model, batch, stop),
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        match self.at(device) {
            Ok(at) => at.execute_traced(0, model, batch, stop),
            Err(error) => (batch.iter().map(|_| Err(error.clone())).collect(), Vec::new()),
        }
    }

    fn is_at_hand(&self, device: usize, model: &ModelRef) -> bool {
        self.at(device).is_ok_and(|at| at.is_at_hand(0, model))
    }

    /// One device is reason enough: the others lose seconds, and it would be lost for as long as the process lives.
    fn must_restart(&self) -> bool {
        self.all().any(Executor::must_restart)
    }

    fn status(&self) -> ExecutorStatus {
        ExecutorStatus {
            devices: self.all().flat_map(|at| at.status().devices).collect(),
            unused: self.unused.get().cloned().unwrap_or_default(),
        }
    }

    fn cache(&self) -> Option<&dyn ModelCache> {
        self.first.cache().map(|_| self as &dyn ModelCache)
    }
}

/// The cached files serve all devices: a file that any device uses stays.
impl ModelCache for MultiExecutor {
    fn lacks(&self, model: &ModelRef) -> Option<PathBuf> {
        // A device that has loaded the model needs no file, but another one may need it later.
        self.all().find_map(|at| at.lacks(model))
    }

    fn make_room(&self, model: &ModelRef, bytes: u64) -> Result<(), ExecError> {
        let in_use = |sha256: &str| self.all().any(|at| at.is_in_use(sha256));
        self.first.make_room_beside(model, bytes, in_use)
    }

    fn keep(
        &self,
        model: &ModelRef,
        collected: &Path,
        parts: &[BlobPart],
    ) -> Result<(), ExecError> {
        self.first.keep(model, collected, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::tests::{input, repository};
    use lgp_inference::SessionOptions;

    #[test]
    fn the_cache_is_that_of_all_devices() {
        let (folder, repository, model) = repository();
        let kept = repository.add(&model.sha256, folder.path().join("relu.onnx"));
        kept.expect("as one that was fetched");
        let device = || {
            let executor =
                ModelExecutor::new(repository.clone(), None, SessionOptions::with_threads(1));
            executor.fetching(10_000)
        };
        let both = MultiExecutor::new(device(), vec![device()]);
        let cache = both.cache().expect("it fetches");
        both.load(1, &model).expect("its file is here");
        let other = ModelRef { sha256: "0".repeat(64), ..model.clone() };
        cache.make_room(&other, 9_999).expect_err("the second device uses what is there");
        assert_eq!(cache.lacks(&model), None);
        both.unload(1, &model);
        both.load(0, &model).expect("its file is here");
        cache.make_room(&other, 9_999).expect_err("so does the first");
        repository.remove(&model.sha256, None).expect("it was there");
        assert!(cache.lacks(&model).is_some(), "the second device has neither file nor model");
        both.unload(0, &model);
        cache.make_room(&other, 9_999).expect("nobody uses anything");
    }

    #[test]
    fn each_device_has_its_own_models() {
        let (_folder, repository, model) = repository();
        let device =
            || ModelExecutor::new(repository.clone(), None, SessionOptions::with_threads(1));
        let both = MultiExecutor::new(device(), vec![device()]);
        both.load(1, &model).expect("a good model");
        let loaded: Vec<usize> = both.status().devices.iter().map(|d| d.models.len()).collect();
        assert_eq!(loaded, [0, 1]);
        assert!(both.footprint(1, &model).is_some() && both.footprint(0, &model).is_none());
        let outputs =
            both.execute(0, &model, &input("x", &[-1., 2.]), &Stop::new()).expect("a good task");
        assert_eq!(outputs[0].tensor.as_slice::<f32>().expect("f32"), [0., 2.]);
        both.unload(0, &model);
        let loaded: Vec<usize> = both.status().devices.iter().map(|d| d.models.len()).collect();
        assert_eq!(loaded, [0, 1]);
        for device in [2, usize::MAX] {
            let error = both.load(device, &model).expect_err("there are two");
            assert!(error.message.contains("of 2"), "{error}");
        }
    }
}
