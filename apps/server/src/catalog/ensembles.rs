//! Ensembles in the folder of models: loading, reloading when their files change, and dropping.

mod kept;

use super::entry::Models;
use super::found::Found;
use super::{Catalog, ModelEntry, Readiness, lock};
use crate::ensemble::{Draft, FILE, ModelName};
use crate::fault::Fault;
use crate::faults::disk;
pub(super) use kept::Ensembles;
use kept::{Text, names};
use lgp_sdk::cluster::ModelRef;
use lgp_sdk::model::Repository;

/// The version of every ensemble.
pub(super) const VERSION: u64 = 1;

/// The error for an ensemble that was requested and cannot be used.
pub(super) fn unusable(name: &str, fault: Fault) -> Fault {
    let message = format!("ensemble '{name}' cannot be used: {}", fault.message);
    Fault { message, ..fault }
}

/// The entry, if it has the requested version.
pub(super) fn check_version(entry: ModelEntry, version: Option<u64>) -> Result<ModelEntry, Fault> {
    match version {
        Some(version) if entry.ensemble().is_some() && version != VERSION => {
            let name = entry.name();
            let what = format!("ensemble '{name}' has no version {version}, expected {VERSION}");
            Err(Fault::not_found("unknown_model", what))
        }
        _ => Ok(entry),
    }
}

impl Catalog {
    /// Checks every ensemble in the folder.
    pub(super) async fn look_at_ensembles(&self) -> Result<Vec<Found>, Fault> {
        let names = self.files(|repository| Ok(names(repository.root()))).await?;
        let names = names.map_err(|error| disk(&error))?;
        let mut all = Vec::new();
        for name in &names {
            if let Some(found) = self.look_at_ensemble(name).await {
                all.push((name.clone(), VERSION, found));
            }
        }
        let mut known: Vec<String> = lock(&self.ensembles.serving).keys().cloned().collect();
        known.extend(lock(&self.ensembles.faults).keys().cloned());
        for gone in known.iter().filter(|name| !names.contains(name)) {
            self.look_at_ensemble(gone).await;
        }
        Ok(all)
    }

    /// Checks one ensemble; `None` if there is none. An ensemble with unusable changes keeps serving in its earlier
    /// form.
    pub(super) async fn look_at_ensemble(&self, name: &str) -> Option<Result<ModelEntry, Fault>> {
        if !Repository::is_name(name) {
            return None;
        }
        let _turn = self.ensembles.looking.of(name).await;
        let owned = name.to_owned();
        let read = self.files(move |repository| Ok(Text::read(repository, &owned))).await;
        let text = match read.and_then(|read| read.map_err(|error| disk(&error))) {
            Ok(Some(text)) => text,
            Ok(None) => {
                self.ensembles.forget(name);
                return None;
            }
            Err(fault) => return Some(Err(fault)),
        };
        let sha256 = text.sha256.clone();
        Some(match self.ensemble_of(name, text).await {
            Ok(entry) => Ok(self.ensembles.take(name, entry)),
            Err(reason) => self.ensembles.refuse(name, &sha256, Fault::bad_input(reason)),
        })
    }

    async fn ensemble_of(&self, name: &str, text: Text) -> Result<ModelEntry, String> {
        let Text { folder, text, sha256, has_versions } = text;
        if has_versions {
            let what =
                format!("the folder has {FILE} and versions of a model, expected one of them");
            return Err(what);
        }
        Self::refuse_reserved(name).map_err(|fault| fault.message)?;
        let draft = Draft::parse(&text?)?;
        let mut models = Models::new();
        for (title, model) in draft.models() {
            let found = self.model_of_step(model).await;
            models.insert(model.clone(), found.map_err(|reason| format!("{title}: {reason}"))?);
        }
        let ensemble = draft.with(|name| models.get(name).map(ModelEntry::signature))?;
        let model = ModelRef { name: name.to_owned(), version: VERSION, sha256 };
        Ok(ModelEntry::of_ensemble(model, folder, ensemble, models))
    }

    /// The model that a step names, directly or by an alias.
    async fn model_of_step(&self, model: &ModelName) -> Result<ModelEntry, String> {
        let ModelName { name, version } = model;
        let Some(alias) = self.aliases.get(name) else {
            return self.model_alone(name, *version).await;
        };
        if version.is_some() {
            return Err(format!("'{name}' is an alias, expected it without a version"));
        }
        let mut first = None;
        for target in &alias.targets {
            let entry = self.model_alone(&target.model, target.version).await?;
            first = first.or(Some(entry));
        }
        first.ok_or_else(|| format!("alias '{name}' leads nowhere"))
    }

    async fn model_alone(&self, name: &str, version: Option<u64>) -> Result<ModelEntry, String> {
        match self.registered(name, version).await {
            Ok(entry) => Ok(entry),
            Err(_) if self.has_ensemble(name).await => {
                Err(format!("'{name}' is an ensemble, expected a model"))
            }
            Err(fault) => Err(fault.message),
        }
    }

    /// Whether the folder of this name has an ensemble file, valid or not.
    pub(super) async fn has_ensemble(&self, name: &str) -> bool {
        if !Repository::is_name(name) {
            return false;
        }
        let owned = name.to_owned();
        let has = move |r: &Repository| Ok(r.root().join(owned).join(FILE).is_file());
        self.files(has).await.unwrap_or(false)
    }

    /// Refuses operations that only models support.
    pub(super) fn refuse_ensemble(&self, name: &str) -> Result<(), Fault> {
        if self.ensembles.serving(name).is_none() {
            return Ok(());
        }
        let what = format!("'{name}' is an ensemble, which is its file {FILE} and nothing else");
        Err(Fault::bad_input(what)
            .hint("change or delete the file; its models have names of their own"))
    }

    /// The readiness of an ensemble: ready when all of its models are.
    pub(super) fn readiness_of_all(&self, ensemble: &ModelEntry) -> Readiness {
        for (name, seen) in ensemble.models_of_steps() {
            match self.readiness_of_step(name, seen) {
                Readiness::Ready | Readiness::Parked => {}
                Readiness::Loading => return Readiness::Loading,
                other => {
                    let reason = other.reason();
                    return Readiness::Failed(format!("its model '{name}' is not ready: {reason}"));
                }
            }
        }
        Readiness::Ready
    }

    /// The readiness for the index, which also reports changed files that cannot be used.
    pub(super) fn told_readiness(&self, entry: &ModelEntry) -> Readiness {
        let readiness = self.readiness(entry);
        let fault = match entry.ensemble() {
            Some(_) => self.ensembles.fault(entry.name()),
            None => self.survey.reads.outdated(entry.name(), entry.version()),
        };
        match (readiness, fault) {
            (Readiness::Ready, Some(fault)) => Readiness::Outdated(fault.message),
            (readiness, _) => readiness,
        }
    }

    /// The readiness of a step's model. For an alias, one ready target is enough, because a request may go to that
    /// target.
    fn readiness_of_step(&self, model: &ModelName, seen: &ModelEntry) -> Readiness {
        let Some(alias) = self.aliases.get(&model.name) else {
            return self.readiness_now(&model.name, model.version, seen);
        };
        let targets = alias.targets.iter();
        let mut all = targets.map(|it| self.readiness_now(&it.model, it.version, seen));
        let Some(first) = all.next() else { return Readiness::Unloaded };
        match first.is_usable() {
            true => first,
            false => all.find(Readiness::is_usable).unwrap_or(first),
        }
    }

    /// The readiness of a model without reading its folder. If its files were not read since a change, the versions
    /// on workers count, or else the entry seen earlier.
    fn readiness_now(&self, name: &str, version: Option<u64>, seen: &ModelEntry) -> Readiness {
        // If the name now is an ensemble, the step itself reports that with its own error.
        if self.ensembles.serving(name).is_some() {
            return Readiness::Ready;
        }
        let known = lock(&self.known).entries.get(name).cloned();
        if let Some(entry) = known.and_then(|all| self.pick(&all, version)) {
            return self.readiness_of(entry.model());
        }
        let is_asked = |model: &ModelRef| {
            model.name == name && version.is_none_or(|version| version == model.version)
        };
        let wanted = self.coordinator.models().into_iter().filter(is_asked);
        let mut states: Vec<Readiness> = wanted.map(|model| self.readiness_of(&model)).collect();
        match states.iter().position(Readiness::is_usable) {
            Some(at) => states.swap_remove(at),
            None if is_asked(seen.model()) => self.readiness_of(seen.model()),
            None => states.pop().unwrap_or(Readiness::Unloaded),
        }
    }
}
