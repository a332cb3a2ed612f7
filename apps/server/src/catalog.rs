//! Registered models, and the workers that have them loaded.
//!
//! The repository knows the files and the coordinator the workers; requests need both.

mod bare;
mod change;
mod demand;
mod ensembles;
mod entry;
mod found;
mod named;
mod news;
mod readiness;
mod reads;
mod survey;
mod turns;
mod watch;

pub(crate) use change::LoadOutcome;
pub(crate) use entry::ModelEntry;
pub(crate) use named::Named;
pub(crate) use readiness::Readiness;
pub(crate) use survey::Indexed;

use crate::aliases::Aliases;
use crate::cache::ResponseCache;
use crate::deployment::Deployment;
use crate::fault::Fault;
use crate::faults;
use crate::sequences::Sequences;
use crate::versions::VersionPolicy;
use demand::Demands;
use ensembles::Ensembles;
use lgp_distributed::ModelReadiness;
use lgp_sdk::cluster::{Coordinator, ModelRef, TaskId, TaskState};
use lgp_sdk::model::{Error as ModelError, Repository};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use survey::Survey;
use tokio::sync::{OwnedMutexGuard, watch as events};
use turns::Turns;

/// Cached versions of each model, oldest first, so that an inference reads no files. The cache changes with the
/// catalog's own calls and with each look at the folder.
#[derive(Default)]
struct Known {
    entries: HashMap<String, Arc<[ModelEntry]>>,
    /// The response cache of each such model that has one, shared by its versions.
    caches: HashMap<String, Arc<ResponseCache>>,
    /// Incremented whenever an entry is dropped: data read from disk before may be stale.
    generation: u64,
}

/// The repository and the coordinator, seen together.
pub(crate) struct Catalog {
    coordinator: Coordinator,
    repository: Repository,
    known: Mutex<Known>,
    aliases: Aliases,
    /// Held while a name is given to a model or an alias, so that both never share one.
    naming: tokio::sync::Mutex<()>,
    /// Why the last load of each model failed on every worker.
    failures: Mutex<BTreeMap<ModelRef, String>>,
    /// Signals that models were unloaded, or that runs of unloaded models ended.
    unloads: events::Sender<()>,
    /// A turn is held while versions of a model change, so that changes do not overlap.
    changing: Turns,
    demands: Demands,
    /// Held while the list of loaded versions is written.
    keeping: Arc<Mutex<()>>,
    survey: Arc<Survey>,
    ensembles: Ensembles,
    sequences: Arc<Sequences>,
}

impl Catalog {
    pub(crate) fn new(
        coordinator: Coordinator,
        repository: Repository,
        sequences: Arc<Sequences>,
    ) -> Self {
        let aliases = Aliases::beside(repository.root());
        let survey = Arc::new(Survey::of(&repository));
        Self {
            coordinator,
            repository,
            known: Mutex::default(),
            aliases,
            naming: tokio::sync::Mutex::default(),
            failures: Mutex::default(),
            unloads: events::Sender::default(),
            changing: Turns::default(),
            demands: Demands::default(),
            keeping: Arc::default(),
            survey,
            ensembles: Ensembles::default(),
            sequences,
        }
    }

    /// A model or an ensemble. Without a version: the newest usable one, or else the newest.
    pub(crate) async fn get(&self, name: &str, version: Option<u64>) -> Result<ModelEntry, Fault> {
        if let Some(entry) = self.ensembles.serving(name) {
            return ensembles::check_version(entry, version);
        }
        match self.registered(name, version).await {
            Err(fault) if fault.code == "unknown_model" => {
                let Some(found) = self.look_at_ensemble(name).await else { return Err(fault) };
                let found = found.map_err(|fault| ensembles::unusable(name, fault))?;
                ensembles::check_version(found, version)
            }
            found => found,
        }
    }

    /// Like `get`, for models alone.
    async fn registered(&self, name: &str, version: Option<u64>) -> Result<ModelEntry, Fault> {
        let (all, generation) = {
            let known = lock(&self.known);
            (known.entries.get(name).cloned(), known.generation)
        };
        if let Some(entry) = all.and_then(|all| self.pick(&all, version)) {
            return Ok(entry);
        }
        let all = self.entries(name).await?;
        let all = self.as_deployed(name, all, generation).await?;
        let picked = self.pick(&all, version);
        self.know(name, all, generation);
        match picked {
            Some(entry) => Ok(entry),
            None => Err(self.missing(name, version).await),
        }
    }

    /// The versions of a model with their shared response cache, if it has one. Versions that keep sequences get no
    /// cache, because their answers depend on more than their inputs.
    async fn as_deployed(
        &self,
        name: &str,
        all: Vec<ModelEntry>,
        generation: u64,
    ) -> Result<Vec<ModelEntry>, Fault> {
        let Some(newest) = all.last().cloned() else { return Ok(all) };
        let owned = name.to_owned();
        let wish = self.files(move |r| Deployment::beside(newest.config(), r, &owned)).await?;
        if let Some(sequences) = &wish.sequences {
            return Ok(all.iter().map(|entry| entry.keeping(sequences)).collect());
        }
        let Some(fresh) = ResponseCache::of(&wish) else { return Ok(all) };
        let mut known = lock(&self.known);
        if known.generation != generation {
            return Ok(all);
        }
        let cache = known.caches.entry(name.to_owned()).or_insert_with(|| Arc::new(fresh));
        Ok(all.iter().map(|entry| entry.with(Arc::clone(cache))).collect())
    }

    /// Caches the versions of a model unless entries were dropped since they were read. Only existing models are
    /// cached, so invented names do not grow the cache.
    fn know(&self, name: &str, all: Vec<ModelEntry>, generation: u64) {
        let mut known = lock(&self.known);
        if known.generation == generation && !all.is_empty() {
            if let Some(newest) = all.last() {
                self.survey.will_act_on(name, newest.config());
            }
            known.entries.insert(name.to_owned(), all.into());
        }
    }

    /// The requested version; without one, the newest that serves, so that a version that still loads does not hide
    /// it.
    fn pick(&self, all: &[ModelEntry], version: Option<u64>) -> Option<ModelEntry> {
        if let Some(version) = version {
            return all.iter().find(|entry| entry.version() == version).cloned();
        }
        if let [one] = all {
            return Some(one.clone());
        }
        let states: Vec<_> =
            all.iter().map(|entry| self.coordinator.readiness(entry.model())).collect();
        let newest = |fits: fn(&ModelReadiness) -> bool| states.iter().rposition(fits);
        let picked = newest(|s| matches!(s, ModelReadiness::Ready | ModelReadiness::Parked));
        let picked = picked.or_else(|| newest(|s| *s != ModelReadiness::Unwanted));
        picked.map_or(all.last(), |at| all.get(at)).cloned()
    }

    /// Every usable version and ensemble.
    pub(crate) async fn list(&self) -> Result<Vec<ModelEntry>, Fault> {
        Ok(self.survey().await?.into_iter().filter_map(|(_, _, found)| found.ok()).collect())
    }

    /// The versions of a model that serve, oldest first; if none does, those that can be loaded. An ensemble
    /// has one version.
    pub(crate) async fn versions(&self, name: &str) -> Result<Vec<u64>, Fault> {
        if self.ensembles.serving(name).is_some() {
            return Ok(vec![ensembles::VERSION]);
        }
        let all = self.entries(name).await?;
        let serve = all.iter().filter(|entry| self.readiness_of(entry.model()).is_usable());
        let serving: Vec<u64> = serve.map(ModelEntry::version).collect();
        match serving.is_empty() {
            true => Ok(all.iter().map(ModelEntry::version).collect()),
            false => Ok(serving),
        }
    }

    /// Like `versions`, for models alone and with every usable version.
    async fn numbers(&self, name: &str) -> Result<Vec<u64>, Fault> {
        Ok(self.entries(name).await?.iter().map(ModelEntry::version).collect())
    }

    /// The versions of a model that can be used, oldest first.
    async fn entries(&self, name: &str) -> Result<Vec<ModelEntry>, Fault> {
        let all = self.survey_models(Some(name.to_owned())).await?;
        Ok(all.into_iter().filter_map(|(_, _, found)| found.ok()).collect())
    }

    /// Runs file operations on a blocking thread, away from the threads that serve connections.
    async fn files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Repository) -> Result<T, ModelError> + Send + 'static,
    ) -> Result<T, Fault> {
        let repository = self.repository.clone();
        tokio::task::spawn_blocking(move || work(&repository))
            .await
            .map_err(Fault::internal)?
            .map_err(|e| faults::model(&e))
    }

    /// The path of a version's file.
    pub(crate) async fn path(&self, entry: &ModelEntry) -> Result<PathBuf, Fault> {
        let (name, version) = (entry.name().to_owned(), entry.version());
        self.files(move |repository| Ok(repository.get(&name, Some(version))?.path)).await
    }

    /// The folder that holds the models.
    pub(crate) fn root(&self) -> &Path {
        self.repository.root()
    }

    /// Whether a worker is ready and has at least one of its models. A model that still loads does not make the
    /// others unready.
    pub(crate) fn is_ready(&self) -> bool {
        self.coordinator.is_serving()
    }

    /// Names of the ready workers that have a model.
    pub(crate) fn workers(&self, entry: &ModelEntry) -> Vec<String> {
        let workers = self.coordinator.workers_with(entry.model()).into_iter();
        workers.map(|worker| worker.to_string()).collect()
    }

    /// Whether a model can be used.
    pub(crate) fn readiness(&self, entry: &ModelEntry) -> Readiness {
        if entry.ensemble().is_some() {
            return self.readiness_of_all(entry);
        }
        self.readiness_of(entry.model())
    }

    /// The readiness of a version, whether or not its files were read.
    fn readiness_of(&self, model: &ModelRef) -> Readiness {
        let seen = self.coordinator.readiness(model);
        if seen == ModelReadiness::Ready {
            return Readiness::Ready;
        }
        match (lock(&self.failures).get(model), seen) {
            (Some(message), _) => Readiness::Failed(message.clone()),
            (None, ModelReadiness::Ready) => Readiness::Ready,
            (None, ModelReadiness::Parked) => Readiness::Parked,
            (None, ModelReadiness::Loading) => Readiness::Loading,
            // A worker that joined later may have failed although earlier ones had not.
            (None, ModelReadiness::Failed(error)) => Readiness::Failed(error.message),
            (None, ModelReadiness::Unwanted) => Readiness::Unloaded,
        }
    }

    /// Refuses with 503 unless a ready worker has the model.
    pub(crate) fn require_ready(&self, entry: &ModelEntry) -> Result<(), Fault> {
        match self.readiness(entry) {
            Readiness::Ready | Readiness::Parked => Ok(()),
            other => Err(not_ready(entry, &other)),
        }
    }

    /// Refuses with 503 unless the workers are to have the model. A task may wait for a worker.
    pub(crate) fn require_wanted(&self, entry: &ModelEntry) -> Result<(), Fault> {
        match self.coordinator.readiness(entry.model()) {
            ModelReadiness::Unwanted => self.require_ready(entry),
            _ => Ok(()),
        }
    }

    /// The versions of a model to load: those of its policy, or else those that the cluster wants now.
    pub(crate) async fn version_policy(&self, name: &str) -> VersionPolicy {
        if self.ensembles.serving(name).is_some() {
            return VersionPolicy::Listed(vec![ensembles::VERSION]);
        }
        let policy = self.deployment(name).await.version_policy;
        policy.unwrap_or_else(|| {
            let wanted = self.coordinator.models().into_iter();
            let named = wanted.filter(|model| model.name == name);
            VersionPolicy::Listed(named.map(|model| model.version).collect())
        })
    }

    /// A model's deployment for display; the default if it cannot be read.
    pub(crate) async fn deployment(&self, name: &str) -> Deployment {
        let read = self.try_deployment(name).await;
        // Every listing of models reads deployments. Requests that use the model get the error.
        let untold = |fault: &Fault| {
            let reason = &fault.message;
            tracing::debug!(name, reason, "a model's deployment cannot be read");
        };
        read.inspect_err(untold).unwrap_or_default()
    }

    /// A model's deployment, or why it cannot be read.
    async fn try_deployment(&self, name: &str) -> Result<Deployment, Fault> {
        let owned = name.to_owned();
        let read = self.files(move |r| Ok(Deployment::of(r, &owned))).await?;
        read.map_err(|error| faults::deploy(&error))
    }

    /// Resolves once a task waits because its model was unloaded.
    pub(crate) async fn stranded(&self, entry: &ModelEntry, task: TaskId) -> Fault {
        let mut unloads = self.unloads.subscribe();
        loop {
            let waits = self.coordinator.state(task).is_ok_and(|state| state == TaskState::Queued);
            if waits && self.coordinator.is_withdrawn(entry.model()) {
                return not_ready(entry, &Readiness::Unloaded);
            }
            // The sender lives as long as this catalog.
            if unloads.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the turn to change a model.
    async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        self.changing.of(name).await
    }

    /// Drops the cached state of a model: its versions, response cache and demands.
    fn forget(&self, name: &str) {
        self.demands.forget(name);
        let mut known = lock(&self.known);
        known.generation += 1;
        known.entries.remove(name);
        known.caches.remove(name);
    }
}

fn not_ready(entry: &ModelEntry, readiness: &Readiness) -> Fault {
    let (name, version, reason) = (entry.name(), entry.version(), readiness.reason());
    let message = format!("model '{name}' version {version} is not ready: {reason}");
    let fault = Fault::unavailable(faults::NOT_READY, message);
    if entry.ensemble().is_some() {
        return fault.hint("radeon-cluster models ls");
    }
    fault.hint(format!("radeon-cluster models load {name}/{version}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Data behind these locks is consistent after every statement, so a panic cannot have damaged it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
