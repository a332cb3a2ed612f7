//! Registered models, and where the cluster has them loaded.
//!
//! The repository knows files, the coordinator knows workers; requests need both at once.

mod named;

pub(crate) use named::Named;

use crate::aliases::Aliases;
use crate::cache::ResponseCache;
use crate::fault::Fault;
use crate::faults;
use lgp_sdk::{
    Coordinator, Deployment, Entry, ExecError, ModelError, ModelNeeds, ModelReadiness, ModelRef,
    Repository, TaskId, TaskState, ValueSpec,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

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
    /// Its answers, where they are to be kept.
    cache: Option<Arc<ResponseCache>>,
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

    /// Where its answers are kept, if they are to be.
    pub(crate) fn cache(&self) -> Option<&ResponseCache> {
        self.0.cache.as_deref()
    }

    fn new(entry: Entry, cache: Option<Arc<ResponseCache>>) -> Self {
        let Entry { name, version, sha256, inputs, outputs, .. } = entry;
        let model = ModelRef { name, version, sha256 };
        Self(Arc::new(Inner { model, inputs, outputs, cache }))
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
    /// It has made room for others, and comes back when a task asks for it.
    Parked,
    /// Nobody asked for it.
    Unloaded,
}

impl Readiness {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ready | Self::Parked => "READY",
            Self::Loading => "LOADING",
            Self::Failed(_) | Self::Unloaded => "UNAVAILABLE",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ready => "",
            Self::Loading => "no worker has loaded it yet",
            Self::Failed(message) => message,
            Self::Parked => "it has made room for others, and comes back when it is asked for",
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

/// Entries by name and asked-for version, so that an inference reads no files. A stored version
/// never changes; which one is the newest does, with the catalog's own calls.
#[derive(Default)]
struct Known {
    entries: HashMap<(String, Option<u64>), ModelEntry>,
    /// The cache of each model among them that has one, for all of its versions.
    caches: HashMap<String, Arc<ResponseCache>>,
    /// Grows when something is forgotten: what was read from disk before that may be stale.
    generation: u64,
}

/// The repository and the coordinator, seen together.
pub(crate) struct Catalog {
    coordinator: Coordinator,
    repository: Repository,
    known: Mutex<Known>,
    aliases: Aliases,
    /// Held while a name is taken: it is a model's or an alias.
    naming: tokio::sync::Mutex<()>,
    /// Why the last load of a model failed everywhere.
    failures: Mutex<BTreeMap<ModelRef, String>>,
    /// Tells that models were unloaded, or runs of these ended.
    unloads: watch::Sender<()>,
}

impl Catalog {
    pub(crate) fn new(coordinator: Coordinator, repository: Repository) -> Self {
        let (known, failures) = (Mutex::default(), Mutex::default());
        let (aliases, naming) = (Aliases::beside(repository.root()), tokio::sync::Mutex::default());
        let unloads = watch::Sender::default();
        Self { coordinator, repository, known, aliases, naming, failures, unloads }
    }

    /// A registered model; without a version the newest.
    pub(crate) async fn get(&self, name: &str, version: Option<u64>) -> Result<ModelEntry, Fault> {
        let key = (name.to_owned(), version);
        let generation = {
            let known = lock(&self.known);
            if let Some(entry) = known.entries.get(&key) {
                return Ok(entry.clone());
            }
            known.generation
        };
        let (name, version) = key.clone();
        let entry = self.files(move |r| r.get(&name, version)).await?;
        let wish = self.deployment(&entry.name).await;
        let mut known = lock(&self.known);
        // Only models that exist are remembered: made-up names do not make this grow.
        if known.generation != generation {
            return Ok(entry.into());
        }
        let cache = known.caches.get(&entry.name).cloned();
        let cache = cache.or_else(|| ResponseCache::of(&wish).map(Arc::new));
        if let Some(cache) = &cache {
            known.caches.insert(entry.name.clone(), Arc::clone(cache));
        }
        let entry = ModelEntry::new(entry, cache);
        known.entries.insert(key, entry.clone());
        Ok(entry)
    }

    /// Every registered version, by name and version.
    pub(crate) async fn list(&self) -> Result<Vec<ModelEntry>, Fault> {
        Ok(self.files(|r| r.list()).await?.into_iter().map(ModelEntry::from).collect())
    }

    /// The versions of a model, oldest first.
    pub(crate) async fn versions(&self, name: &str) -> Result<Vec<u64>, Fault> {
        let named = |e: &&ModelEntry| e.name() == name;
        Ok(self.list().await?.iter().filter(named).map(ModelEntry::version).collect())
    }

    /// Work on files, away from the threads that serve connections.
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

    /// The folder that holds the models.
    pub(crate) fn root(&self) -> &Path {
        self.repository.root()
    }

    /// Whether there is a ready worker, and it has one of the models it is to have. A model that
    /// is still loading does not make the others unready.
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
        let seen = self.coordinator.readiness(entry.model());
        if seen == ModelReadiness::Ready {
            return Readiness::Ready;
        }
        match (lock(&self.failures).get(entry.model()), seen) {
            (Some(message), _) => Readiness::Failed(message.clone()),
            (None, ModelReadiness::Ready) => Readiness::Ready,
            (None, ModelReadiness::Parked) => Readiness::Parked,
            (None, ModelReadiness::Loading) => Readiness::Loading,
            // A worker that came later may have failed where earlier ones had not.
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

    /// Refuses with 503 unless the workers are to have the model: a task may wait for one.
    pub(crate) fn require_wanted(&self, entry: &ModelEntry) -> Result<(), Fault> {
        match self.coordinator.readiness(entry.model()) {
            ModelReadiness::Unwanted => self.require_ready(entry),
            _ => Ok(()),
        }
    }

    /// Has every worker load the newest version, also workers that join later, and let go of
    /// older ones.
    pub(crate) async fn load(&self, name: &str) -> Result<LoadOutcome, Fault> {
        self.forget(name);
        let entry = self.get(name, None).await?;
        let model = entry.model();
        let needs = self.needs(name).await?;
        let loading = self.coordinator.load_where(model.clone(), needs);
        let results = loading.await.map_err(faults::cluster)?;
        let mut workers = Vec::new();
        let mut failure: Option<ExecError> = None;
        for (worker, result) in results {
            match result {
                Ok(()) => workers.push(worker.to_string()),
                Err(error) => failure = Some(error),
            }
        }
        if let (Some(error), true) = (failure, workers.is_empty()) {
            lock(&self.failures).insert(model.clone(), error.message.clone());
            self.coordinator.unload(model);
            return Err(Fault::bad_input(format!("no worker can load '{name}': {error}")));
        }
        lock(&self.failures).remove(model);
        // Also of those that were withdrawn: their tasks may go on.
        for other in self.all_of(name).await?.iter().filter(|other| *other != model) {
            self.coordinator.unload(other);
        }
        self.tell_others(name).await?;
        if !self.coordinator.models().contains(entry.model()) {
            return Err(Fault::bad_input(format!("'{name}' was unloaded while it was loaded")));
        }
        Ok(LoadOutcome { entry, workers })
    }

    /// What a model asks of the cluster: nothing, where what was said cannot be read.
    pub(crate) async fn deployment(&self, name: &str) -> Deployment {
        let owned = name.to_owned();
        let read = self.files(move |r| Deployment::of(r, &owned)).await;
        read.inspect_err(|_| tracing::warn!(name, "a model's deployment cannot be read"))
            .unwrap_or_default()
    }

    async fn needs(&self, name: &str) -> Result<ModelNeeds, Fault> {
        let name = name.to_owned();
        self.files(move |r| Ok(Deployment::of(r, &name)?.needs(r))).await
    }

    /// Models that this one may stand in for learn of its newest version.
    async fn tell_others(&self, name: &str) -> Result<(), Fault> {
        for model in self.coordinator.models() {
            let deployment = self.deployment(&model.name).await;
            if deployment.variants.iter().any(|variant| variant == name) {
                self.coordinator.set_needs(&model, self.needs(&model.name).await?);
            }
        }
        Ok(())
    }

    /// Says what a model asks of the cluster, at once and from now on.
    pub(crate) async fn deploy(&self, name: &str, wish: Deployment) -> Result<ModelEntry, Fault> {
        let entry = self.get(name, None).await?;
        let owned = name.to_owned();
        self.files(move |r| Ok(wish.save(r, &owned))).await?.map_err(|e| faults::deploy(&e))?;
        self.forget_entries(name);
        self.coordinator.set_needs(entry.model(), self.needs(name).await?);
        Ok(entry)
    }

    /// Takes every version of a model from the workers; its files stay. What runs goes on; tasks that have
    /// not begun wait from then on.
    pub(crate) async fn unload(&self, name: &str) -> Result<ModelEntry, Fault> {
        self.forget(name);
        let entry = self.get(name, None).await?;
        self.coordinator.withdraw(&self.all_of(name).await?);
        self.unloads.send_replace(());
        Ok(entry)
    }

    /// Takes every version of a model from the workers and waits until none runs it. Tasks of it wait
    /// from then on; what runs for longer is ended, and answers those tasks.
    pub(crate) async fn unload_within(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<(ModelEntry, Vec<TaskId>), Fault> {
        self.forget(name);
        let entry = self.get(name, None).await?;
        let models = self.all_of(name).await?;
        let unloading = self.coordinator.unload_within(&models, limit);
        self.unloads.send_replace(());
        let ended = unloading.await.map_err(faults::cluster)?;
        self.unloads.send_replace(());
        Ok((entry, ended))
    }

    /// Each version of a model, on the disk or wanted by the cluster.
    async fn all_of(&self, name: &str) -> Result<Vec<ModelRef>, Fault> {
        let listed = self.list().await?;
        let wanted = self.coordinator.models().into_iter();
        let models = listed.iter().map(|entry| entry.model().clone()).chain(wanted);
        let named: BTreeSet<ModelRef> = models.filter(|model| model.name == name).collect();
        Ok(named.into_iter().collect())
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

    /// Registers a file as the newest version of a model and has the workers load it. A version
    /// that no worker can load is not kept.
    pub(crate) async fn add(&self, name: &str, file: PathBuf) -> Result<LoadOutcome, Fault> {
        let turn = self.naming.lock().await;
        Self::refuse_reserved(name)?;
        if self.aliases.get(name).is_some() {
            return Err(Fault::conflict(format!("'{name}' is an alias, expected another name"))
                .hint(format!("radeon-cluster models alias rm {name}")));
        }
        let owned = name.to_owned();
        let added = self.files(move |r| r.add(&owned, file)).await?;
        drop(turn);
        let outcome = self.load(name).await;
        if outcome.is_err() {
            let owned = name.to_owned();
            self.files(move |r| r.remove(&owned, Some(added.version))).await?;
            self.forget(name);
        }
        outcome
    }

    fn refuse_reserved(name: &str) -> Result<(), Fault> {
        if name == RESERVED {
            return Err(Fault::bad_input(format!("model name '{RESERVED}' is reserved")));
        }
        Ok(())
    }

    /// Takes a model from the workers and deletes its files.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Fault> {
        self.forget(name);
        self.get(name, None).await?;
        for model in self.all_of(name).await? {
            self.coordinator.unload(&model);
        }
        let owned = name.to_owned();
        self.files(move |r| r.remove(&owned, None)).await?;
        self.forget(name);
        Ok(())
    }

    /// Drops what is remembered of a model.
    fn forget(&self, name: &str) {
        self.forget_entries(name);
        lock(&self.failures).retain(|model, _| model.name != name);
    }

    /// Drops what was read of a model's files, and the answers that it gave.
    fn forget_entries(&self, name: &str) {
        let mut known = lock(&self.known);
        known.generation += 1;
        known.entries.retain(|key, _| key.0 != name);
        known.caches.remove(name);
    }
}

fn not_ready(entry: &ModelEntry, readiness: &Readiness) -> Fault {
    let (name, reason) = (entry.name(), readiness.reason());
    Fault::unavailable("model_not_ready", format!("model '{name}' is not ready: {reason}"))
        .hint(format!("radeon-cluster models load {name}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is whole after every statement, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<Entry> for ModelEntry {
    fn from(entry: Entry) -> Self {
        Self::new(entry, None)
    }
}
