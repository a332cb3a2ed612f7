//! Registered models, and where the cluster has them loaded.
//!
//! The repository knows files, the coordinator knows workers; requests need both at once.

use crate::fault::Fault;
use crate::faults;
use crate::stub::{Repository, RepositoryEntry};
use lgp_sdk::{Coordinator, ExecError, ModelRef, ValueSpec, WorkerState};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The model name that paths of the protocol take for themselves.
const RESERVED: &str = "stats";

/// One registered version of a model. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ModelEntry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelRef,
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
}

impl ModelEntry {
    pub(crate) fn model(&self) -> &ModelRef {
        &self.0.model
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.model.name
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.model.version
    }

    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.0.inputs
    }

    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.0.outputs
    }
}

/// Whether a model can be used, with Triton's names for the states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// A ready worker has it.
    Ready,
    /// Workers are to have it, and none has it yet.
    Loading,
    /// Workers could not load it.
    Failed(String),
    /// Nobody asked for it.
    Unloaded,
}

impl Readiness {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Loading => "LOADING",
            Self::Failed(_) | Self::Unloaded => "UNAVAILABLE",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ready => "",
            Self::Loading => "no worker has loaded it yet",
            Self::Failed(message) => message,
            Self::Unloaded => "unloaded",
        }
    }
}

/// What became of a load at the workers that are there.
#[derive(Debug)]
pub(crate) struct LoadOutcome {
    pub(crate) entry: ModelEntry,
    /// Workers that have it now.
    pub(crate) workers: Vec<String>,
}

/// The repository and the coordinator, seen together.
pub(crate) struct Catalog {
    coordinator: Coordinator,
    repository: Repository,
    /// Why the last load of a model failed everywhere.
    failures: Mutex<BTreeMap<ModelRef, String>>,
}

impl Catalog {
    pub(crate) fn new(coordinator: Coordinator, repository: Repository) -> Self {
        Self { coordinator, repository, failures: Mutex::default() }
    }

    /// A registered model; without a version the newest.
    pub(crate) fn get(&self, name: &str, version: Option<u64>) -> Result<ModelEntry, Fault> {
        self.repository.get(name, version).map(entry).map_err(|e| faults::inference(&e))
    }

    /// Every registered version.
    pub(crate) fn list(&self) -> Result<Vec<ModelEntry>, Fault> {
        let entries = self.repository.list().map_err(|e| faults::inference(&e))?;
        Ok(entries.into_iter().map(entry).collect())
    }

    /// The versions of a model, oldest first.
    pub(crate) fn versions(&self, name: &str) -> Result<Vec<u64>, Fault> {
        let named = |e: &&ModelEntry| e.name() == name;
        Ok(self.list()?.iter().filter(named).map(ModelEntry::version).collect())
    }

    /// Whether any model can be used.
    pub(crate) fn is_ready(&self) -> bool {
        self.coordinator
            .workers()
            .iter()
            .any(|w| w.state == WorkerState::Ready && !w.models.is_empty())
    }

    /// Names of the ready workers that have a model.
    pub(crate) fn workers(&self, entry: &ModelEntry) -> Vec<String> {
        let name = entry.model().to_string();
        let workers = self.coordinator.workers().into_iter();
        workers
            .filter(|w| w.state == WorkerState::Ready && w.models.contains(&name))
            .map(|w| w.id.to_string())
            .collect()
    }

    /// Whether a model can be used.
    pub(crate) fn readiness(&self, entry: &ModelEntry) -> Readiness {
        if !self.workers(entry).is_empty() {
            return Readiness::Ready;
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.get(entry.model()) {
            Some(message) => Readiness::Failed(message.clone()),
            None if self.coordinator.models().contains(entry.model()) => Readiness::Loading,
            None => Readiness::Unloaded,
        }
    }

    /// Refuses with 503 unless a ready worker has the model.
    pub(crate) fn require_ready(&self, entry: &ModelEntry) -> Result<(), Fault> {
        match self.readiness(entry) {
            Readiness::Ready => Ok(()),
            other => Err(Fault::unavailable(
                "model_not_ready",
                format!("model '{}' is not ready: {}", entry.name(), other.reason()),
            )
            .hint(format!("radeon-cluster models load {}", entry.name()))),
        }
    }

    /// Refuses with 503 unless the workers are to have the model: a task may wait for one.
    pub(crate) fn require_wanted(&self, entry: &ModelEntry) -> Result<(), Fault> {
        if self.coordinator.models().contains(entry.model()) {
            return Ok(());
        }
        self.require_ready(entry)
    }

    /// Has every worker load the newest version, also workers that join later.
    pub(crate) async fn load(&self, name: &str) -> Result<LoadOutcome, Fault> {
        let entry = self.get(name, None)?;
        let model = entry.model();
        let results = self.coordinator.load(model.clone()).await.map_err(faults::cluster)?;
        let mut workers = Vec::new();
        let mut failure: Option<ExecError> = None;
        for (worker, result) in results {
            match result {
                Ok(()) => workers.push(worker.to_string()),
                Err(error) => failure = Some(error),
            }
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(error) if workers.is_empty() => {
                failures.insert(model.clone(), error.message.clone());
                drop(failures);
                self.coordinator.unload(model);
                Err(Fault::bad_input(format!("no worker can load '{name}': {}", error.message)))
            }
            _ => {
                failures.remove(model);
                drop(failures);
                Ok(LoadOutcome { entry, workers })
            }
        }
    }

    /// Takes every version of a model from the workers; its files stay.
    pub(crate) fn unload(&self, name: &str) -> Result<(), Fault> {
        // Names the model when there is none of that name.
        self.get(name, None)?;
        for model in self.coordinator.models().iter().filter(|m| m.name == name) {
            self.coordinator.unload(model);
        }
        Ok(())
    }

    /// Registers a file as the newest version of a model and has the workers load it. A model
    /// that no worker can load is not kept.
    pub(crate) async fn add(&self, name: &str, file: &Path) -> Result<LoadOutcome, Fault> {
        if name == RESERVED {
            return Err(Fault::bad_input(format!("model name '{RESERVED}' is reserved")));
        }
        let added = self.repository.add(name, file).map_err(|e| faults::inference(&e))?;
        let outcome = self.load(name).await;
        if outcome.is_err()
            && let Err(error) = self.repository.remove_version(name, added.version)
        {
            tracing::warn!(%error, name, "cannot remove a model that does not load");
        }
        outcome
    }

    /// Takes a model from the workers and deletes its files.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Fault> {
        self.unload(name)?;
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|model, _| model.name != name);
        drop(failures);
        self.repository.remove(name).map_err(|e| faults::inference(&e))
    }
}

fn entry(entry: RepositoryEntry) -> ModelEntry {
    let RepositoryEntry { name, version, sha256, inputs, outputs, .. } = entry;
    ModelEntry(Arc::new(Inner { model: ModelRef { name, version, sha256 }, inputs, outputs }))
}
