//! Changes of versions: adding, removing, loading and unloading them.

use super::{Catalog, ModelEntry, ensembles, lock};
use crate::deployment::{Deployment, DeploymentPatch, Sequences};
use crate::fault::Fault;
use crate::faults;
use crate::versions::{Loaded, VersionPolicy, keep_loaded};
use lgp_distributed::{ExecError, ModelNeeds};
use lgp_sdk::cluster::{ModelRef, TaskId};
use lgp_sdk::model::Repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument;

/// A model of this name would clash with a path of the protocol.
const RESERVED: &str = "stats";

/// The result of a load at the connected workers.
#[derive(Debug)]
pub(crate) struct LoadOutcome {
    /// The newest version that the load concerns.
    pub(crate) entry: ModelEntry,
    /// Workers that have this version now.
    pub(crate) workers: Vec<String>,
}

/// The versions that a load concerns.
struct Chosen {
    /// Oldest first.
    entries: Vec<ModelEntry>,
    /// Whether all other versions are to be unloaded.
    alone: bool,
    /// Whether the request named the model alone, without a version.
    whole: bool,
}

impl Catalog {
    /// Has every worker load a version of a model, including workers that join later. Without a version, loads those
    /// that the model's policy chooses and unloads the others; without a policy, loads the newest and keeps the
    /// others.
    pub(crate) async fn load(
        self: &Arc<Self>,
        name: &str,
        version: Option<u64>,
    ) -> Result<LoadOutcome, Fault> {
        let turn = self.turn(name).await;
        // An ensemble's file is read again here, or for the first time.
        match self.look_at_ensemble(name).await {
            Some(Ok(entry)) => {
                let entry = ensembles::check_version(entry, version)?;
                // The ensemble keeps serving as its earlier file said.
                if let Some(fault) = self.ensembles.fault(name) {
                    return Err(ensembles::unusable(name, fault));
                }
                Ok(LoadOutcome { entry, workers: Vec::new() })
            }
            // If the name also has versions of a model, these serve instead.
            Some(Err(fault)) if self.numbers(name).await.map_or(true, |all| all.is_empty()) => {
                Err(ensembles::unusable(name, fault))
            }
            _ => {
                let (_turn, refused) = self.renew_to_the_end(name, version, turn).await?;
                self.load_but(name, version, refused).await
            }
        }
    }

    /// Replaces changed files in a task of its own, so that a client that disconnects does not leave a version half
    /// replaced.
    async fn renew_to_the_end(
        self: &Arc<Self>,
        name: &str,
        version: Option<u64>,
        turn: OwnedMutexGuard<()>,
    ) -> Result<(OwnedMutexGuard<()>, BTreeMap<u64, Fault>), Fault> {
        let (catalog, name) = (Arc::clone(self), name.to_owned());
        let renewal = async move {
            let refused = catalog.renew_all(&name, version).await;
            (turn, refused)
        };
        tokio::spawn(renewal.in_current_span()).await.map_err(Fault::internal)
    }

    async fn load_now(&self, name: &str, version: Option<u64>) -> Result<LoadOutcome, Fault> {
        self.load_but(name, version, BTreeMap::new()).await
    }

    /// Like `load_now`, except for `refused` versions, whose changed files cannot be used. These stay as they are.
    async fn load_but(
        &self,
        name: &str,
        version: Option<u64>,
        refused: BTreeMap<u64, Fault>,
    ) -> Result<LoadOutcome, Fault> {
        self.forget(name);
        let chosen = self.choose(name, version).await?;
        self.bring(name, chosen, refused).await
    }

    async fn choose(&self, name: &str, version: Option<u64>) -> Result<Chosen, Fault> {
        if version.is_some() {
            return Ok(Chosen {
                entries: vec![self.registered(name, version).await?],
                alone: false,
                whole: false,
            });
        }
        let mut entries = self.entries(name).await?;
        let policy = self.try_deployment(name).await?.version_policy;
        let Some(newest) = entries.last() else { return Err(self.missing(name, None).await) };
        let Some(policy) = policy else {
            return Ok(Chosen { entries: vec![newest.clone()], alone: false, whole: true });
        };
        let all: Vec<u64> = entries.iter().map(ModelEntry::version).collect();
        let wanted = policy.choose(&all);
        entries.retain(|entry| wanted.contains(&entry.version()));
        if entries.is_empty() {
            return Err(chooses_none(&policy, name, &all));
        }
        Ok(Chosen { entries, alone: true, whole: true })
    }

    /// Loads the chosen versions that are not refused already, and unloads those that are to go.
    async fn bring(
        &self,
        name: &str,
        chosen: Chosen,
        mut known: BTreeMap<u64, Fault>,
    ) -> Result<LoadOutcome, Fault> {
        let (mut newest, mut refused) = (None, None);
        // A version that fails to load does not keep the others from loading.
        for entry in chosen.entries.iter().rev() {
            let loaded = match known.remove(&entry.version()) {
                Some(fault) => Err(fault),
                None => self.load_one(entry).await,
            };
            match loaded {
                Ok(outcome) => newest = newest.or(Some(outcome)),
                Err(fault) => refused = refused.or(Some(fault)),
            }
        }
        let kept = |model: &ModelRef| chosen.entries.iter().any(|entry| entry.model() == model);
        for other in self.all_of(name).await?.iter().filter(|other| !kept(other)) {
            // Tasks of withdrawn versions may continue once the model as a whole is loaded.
            let may_go_on = chosen.whole && self.coordinator.is_withdrawn(other);
            if chosen.alone && newest.is_some() || may_go_on {
                self.coordinator.unload(other);
                self.sequences.end(name, Some(other.version));
            }
        }
        self.remember_loaded(name).await;
        self.tell_others(name).await;
        // The cached state is stale: another version may serve now.
        self.forget(name);
        let outcome = match (newest, refused) {
            (Some(outcome), None) => outcome,
            (_, Some(fault)) => return Err(fault),
            (None, None) => return Err(Fault::internal("a load chose no version")),
        };
        if !self.coordinator.models().contains(outcome.entry.model()) {
            return Err(Fault::bad_input(format!("'{name}' was unloaded while it was loaded")));
        }
        Ok(outcome)
    }

    pub(super) async fn load_one(&self, entry: &ModelEntry) -> Result<LoadOutcome, Fault> {
        let (name, model) = (entry.name(), entry.model());
        if entry.ensemble().is_some() {
            let what = format!("'{name}' is an ensemble, which no worker loads");
            return Err(Fault::internal(what));
        }
        let needs = self.needs(model).await?;
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
        Ok(LoadOutcome { entry: entry.clone(), workers })
    }

    async fn needs(&self, model: &ModelRef) -> Result<ModelNeeds, Fault> {
        let deployment = self.try_deployment(&model.name).await?;
        let model = model.clone();
        self.files(move |r| Ok(deployment.needs(r, &model))).await
    }

    /// Keeps the loaded versions for the next start. A failure is only logged.
    async fn remember_loaded(&self, name: &str) {
        let (coordinator, keeping) = (self.coordinator.clone(), Arc::clone(&self.keeping));
        let owned = name.to_owned();
        let kept = self.files(move |repository| {
            // Reads the versions under the lock, so that the last write has the latest state.
            let _kept = lock(&keeping);
            let wanted = coordinator.models();
            let named = wanted.iter().filter(|model| model.name == owned);
            let loaded: BTreeSet<u64> = named.map(|model| model.version).collect();
            let known = repository.versions_of(&owned)?;
            keep_loaded(repository, &owned, &Loaded { loaded: Vec::from_iter(loaded), known })
        });
        if kept.await.is_err() {
            tracing::warn!(name, "which versions are loaded is not kept for the next start");
        }
    }

    /// Updates the models for which this model may stand in: they need its newest version.
    pub(super) async fn tell_others(&self, name: &str) {
        for model in self.coordinator.models() {
            let deployment = self.deployment(&model.name).await;
            if deployment.variants.iter().any(|variant| variant == name) {
                match self.needs(&model).await {
                    Ok(needs) => self.coordinator.set_needs(&model, needs),
                    Err(fault) => {
                        let reason = fault.message;
                        tracing::warn!(%model, reason, "a model does not learn of its variant");
                    }
                }
            }
        }
    }

    /// Sets and applies a model's deployment.
    pub(crate) async fn deploy(&self, name: &str, wish: Deployment) -> Result<ModelEntry, Fault> {
        let _turn = self.turn(name).await;
        self.deploy_now(name, wish).await
    }

    /// Changes parts of a model's deployment. Holding the model's turn keeps other changes out.
    pub(crate) async fn amend(
        &self,
        name: &str,
        patch: DeploymentPatch,
    ) -> Result<ModelEntry, Fault> {
        let _turn = self.turn(name).await;
        // Refuses an invalid name before it becomes a path.
        self.numbers(name).await?;
        let owned = name.to_owned();
        let said = self.files(move |r| Deployment::said(r, &owned)).await?;
        self.deploy_now(name, patch.over(said)).await
    }

    async fn deploy_now(&self, name: &str, wish: Deployment) -> Result<ModelEntry, Fault> {
        self.refuse_ensemble(name)?;
        let all = self.numbers(name).await?;
        if let Some(policy) = &wish.version_policy
            && policy.choose(&all).is_empty()
        {
            return Err(chooses_none(policy, name, &all));
        }
        // An unreadable deployment counts as different from the new one.
        let had = self.try_deployment(name).await.ok().map(|had| had.sequences);
        let owned = name.to_owned();
        self.files(move |r| Ok(wish.save(r, &owned))).await?.map_err(|e| faults::deploy(&e))?;
        self.forget_settings(name, had).await;
        self.apply(name).await?;
        self.registered(name, None).await
    }

    /// Drops the cached state of a model. Ends its sequences unless `had`, the earlier settings of sequences, is
    /// known and equal to the present ones.
    pub(super) async fn forget_settings(&self, name: &str, had: Option<Option<Sequences>>) {
        self.forget(name);
        let has = self.deployment(name).await.sequences;
        if had != Some(has) {
            self.sequences.end(name, None);
        }
    }

    /// A model's settings of sequences, if its state is cached.
    pub(super) fn known_sequences(&self, name: &str) -> Option<Option<Sequences>> {
        let known = lock(&self.known);
        let newest = known.entries.get(name)?.last()?;
        Some(newest.stateful().map(|stateful| stateful.wish().clone()))
    }

    /// Has the workers follow a model's current deployment.
    pub(super) async fn apply(&self, name: &str) -> Result<(), Fault> {
        for model in self.coordinator.models().iter().filter(|model| model.name == name) {
            self.coordinator.set_needs(model, self.needs(model).await?);
        }
        if self.try_deployment(name).await?.version_policy.is_some() {
            self.load_now(name, None).await?;
        }
        Ok(())
    }

    /// Unloads a version of a model, or all of them, from the workers; the files stay. Running tasks continue; tasks
    /// that have not begun wait from then on.
    pub(crate) async fn unload(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<ModelEntry, Fault> {
        let _turn = self.turn(name).await;
        let (entry, models) = self.leaving(name, version).await?;
        self.coordinator.withdraw(&models);
        self.sequences.end(name, version);
        self.unloads.send_replace(());
        self.remember_loaded(name).await;
        Ok(entry)
    }

    /// Like `unload`, and waits until no task runs. Ends runs beyond `limit` and returns their tasks.
    pub(crate) async fn unload_within(
        &self,
        name: &str,
        version: Option<u64>,
        limit: Duration,
    ) -> Result<(ModelEntry, Vec<TaskId>), Fault> {
        let turn = self.turn(name).await;
        let (entry, models) = self.leaving(name, version).await?;
        self.coordinator.withdraw(&models);
        self.sequences.end(name, version);
        self.unloads.send_replace(());
        self.remember_loaded(name).await;
        drop(turn);
        let unloading = self.coordinator.unload_within(&models, limit);
        let ended = unloading.await.map_err(faults::cluster)?;
        // Tasks of runs that were ended wait again, so `stranded` must look once more.
        self.unloads.send_replace(());
        Ok((entry, ended))
    }

    /// The model to unload, with the versions that are meant.
    async fn leaving(
        &self,
        name: &str,
        version: Option<u64>,
    ) -> Result<(ModelEntry, Vec<ModelRef>), Fault> {
        self.refuse_ensemble(name)?;
        self.forget(name);
        let entry = self.registered(name, version).await?;
        let mut models = self.all_of(name).await?;
        models.retain(|model| version.is_none_or(|version| version == model.version));
        Ok((entry, models))
    }

    /// Each version of a model, on disk or wanted by the cluster.
    async fn all_of(&self, name: &str) -> Result<Vec<ModelRef>, Fault> {
        let listed = self.entries(name).await?;
        let wanted = self.coordinator.models().into_iter();
        let models = listed.iter().map(|entry| entry.model().clone()).chain(wanted);
        let named: BTreeSet<ModelRef> = models.filter(|model| model.name == name).collect();
        Ok(named.into_iter().collect())
    }

    /// Registers a file as the newest version of a model. The workers load it if the model's policy chooses it; other
    /// versions stay unless the policy drops them. A version that no worker can load, or that contradicts the model's
    /// config file, is deleted again.
    pub(crate) async fn add(&self, name: &str, file: PathBuf) -> Result<LoadOutcome, Fault> {
        let _turn = self.turn(name).await;
        let naming = self.naming.lock().await;
        Self::refuse_reserved(name)?;
        if self.aliases.get(name).is_some() {
            return Err(Fault::conflict(format!("'{name}' is an alias, expected another name"))
                .hint(format!("radeon-cluster models alias rm {name}")));
        }
        if self.has_ensemble(name).await {
            let what = format!("'{name}' is an ensemble, expected another name");
            return Err(Fault::conflict(what));
        }
        // Reports an unreadable deployment before the file is stored.
        if Repository::is_name(name) {
            self.try_deployment(name).await?;
        }
        let owned = name.to_owned();
        let added = self.files(move |r| r.add(&owned, file)).await?;
        drop(naming);
        let version = added.version;
        // A version of this number may have been cached before.
        self.survey.reads.retain(|known| *known != (name.to_owned(), version));
        lock(&self.survey.seen).insert((name.to_owned(), version));
        self.forget(name);
        let outcome = self.come(name, version).await;
        let key = ModelRef { name: added.name, version, sha256: added.sha256 };
        // Another version's failure does not discard this one; a contradiction with the config file does.
        let is_usable =
            || async { self.numbers(name).await.is_ok_and(|all| all.contains(&version)) };
        if outcome.is_err() && (lock(&self.failures).contains_key(&key) || !is_usable().await) {
            self.coordinator.unload(&key);
            self.delete(name, Some(version)).await?;
        }
        outcome
    }

    pub(super) fn refuse_reserved(name: &str) -> Result<(), Fault> {
        if name == RESERVED {
            return Err(Fault::bad_input(format!("model name '{RESERVED}' is reserved")));
        }
        Ok(())
    }

    /// Applies the model's policy to a version that was added.
    pub(super) async fn come(&self, name: &str, version: u64) -> Result<LoadOutcome, Fault> {
        let policy: Option<VersionPolicy> = self.try_deployment(name).await?.version_policy;
        let Some(policy) = policy else { return self.load_now(name, Some(version)).await };
        let all = self.numbers(name).await?;
        match policy.choose(&all).contains(&version) {
            true => self.load_now(name, None).await,
            false => {
                let entry = self.registered(name, Some(version)).await?;
                Ok(LoadOutcome { entry, workers: Vec::new() })
            }
        }
    }

    /// Unloads a model and deletes its files, or those of one version.
    pub(crate) async fn remove(&self, name: &str, version: Option<u64>) -> Result<(), Fault> {
        let _turn = self.turn(name).await;
        self.refuse_ensemble(name)?;
        self.forget(name);
        let owned = name.to_owned();
        // A version that cannot be used may be removed too.
        let there = self.files(move |r| r.versions_of(&owned)).await?;
        if version.is_some_and(|version| !there.contains(&version)) {
            return Err(self.missing(name, version).await);
        }
        // The deployment is deleted with the last version.
        let version = version.filter(|_| there.len() > 1);
        for model in self.all_of(name).await? {
            if version.is_none_or(|version| version == model.version) {
                self.coordinator.unload(&model);
            }
        }
        self.sequences.end(name, version);
        self.delete(name, version).await?;
        match version {
            Some(_) => self.after_loss(name).await,
            None => Ok(()),
        }
    }

    /// After versions were removed, the policy may choose others.
    pub(super) async fn after_loss(&self, name: &str) -> Result<(), Fault> {
        let wish = self.try_deployment(name).await;
        if wish.as_ref().is_ok_and(|wish| wish.version_policy.is_some()) {
            return self.load_now(name, None).await.map(drop);
        }
        self.remember_loaded(name).await;
        wish.map(drop)
    }

    async fn delete(&self, name: &str, version: Option<u64>) -> Result<(), Fault> {
        let owned = name.to_owned();
        self.files(move |r| r.remove(&owned, version)).await?;
        let goes = |(known, number): &(String, u64)| {
            known == name && version.is_none_or(|version| version == *number)
        };
        lock(&self.survey.seen).retain(|seen| !goes(seen));
        self.survey.reads.retain(|read| !goes(read));
        let gone = |model: &ModelRef| {
            model.name == name && version.is_none_or(|version| version == model.version)
        };
        lock(&self.failures).retain(|model, _| !gone(model));
        self.forget(name);
        Ok(())
    }
}

fn chooses_none(policy: &VersionPolicy, name: &str, all: &[u64]) -> Fault {
    Fault::bad_input(format!(
        "the version policy {policy} of '{name}' chooses none of its versions {all:?}"
    ))
}
