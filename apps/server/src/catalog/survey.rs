//! Surveys the repository's folder: which versions are usable, and why the others are not.

use super::bare::{self, bare};
use super::found::{Found, Said, Version, unusable};
use super::reads::Reads;
use super::{Catalog, ModelEntry, Readiness, lock};
use crate::deployment::ModelConfig;
use crate::fault::Fault;
use crate::faults;
use crate::versions::last_loaded;
use lgp_inference::Entry;
use lgp_sdk::model::{Error as ModelError, Repository};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The most versions that are read concurrently after a look at the folder.
const READS_MAX: usize = 2;

/// A version's changed files, and whether the version is usable with them.
pub(super) type Renewed = (Entry, Result<ModelEntry, Fault>);

/// State kept between two looks at the folder.
#[derive(Debug)]
pub(super) struct Survey {
    /// Cached reads of the versions.
    pub(super) reads: Reads,
    /// Why a version does not fit its model's config file, as last logged. The fit is checked at each look, because
    /// a variant or another version may make it valid.
    refused: Mutex<HashMap<Version, String>>,
    /// The content of each model's config file when it was last applied.
    pub(super) configs: Mutex<HashMap<String, Said>>,
    /// Versions that were usable at some look; any other version is new.
    pub(super) seen: Mutex<BTreeSet<Version>>,
    /// Models with an action in progress that a look started.
    pub(super) busy: Mutex<BTreeSet<String>>,
    /// Held while new or changed versions are read, because each takes memory and a CPU.
    pub(super) reading: Semaphore,
}

/// An entry of the repository's index.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) readiness: Readiness,
}

impl Survey {
    /// The survey of a repository whose present usable versions do not count as new.
    pub(super) fn of(repository: &Repository) -> Self {
        let survey = Self {
            reads: Reads::default(),
            refused: Mutex::default(),
            configs: Mutex::default(),
            seen: Mutex::default(),
            busy: Mutex::default(),
            reading: Semaphore::new(READS_MAX),
        };
        let found = survey.found(repository).unwrap_or_default();
        for name in found.keys() {
            // A config file that cannot be read now counts as changed later.
            if let Some(said) = survey.said_anew(repository, name) {
                survey.take(name, said);
            }
        }
        let usable = survey.read_found(repository, found).into_iter();
        let usable =
            usable.filter_map(|(name, version, entry)| entry.ok().map(|_| (name, version)));
        let mut seen: BTreeSet<Version> = usable.collect();
        // A version refused only for its config file is loaded once that is corrected, if it was loaded last.
        let unloaded = |(name, version): &&Version| {
            let last = last_loaded(repository, name).ok().flatten();
            last.is_some_and(|last| last.known.contains(version) && !last.loaded.contains(version))
        };
        seen.extend(lock(&survey.refused).keys().filter(unloaded).cloned());
        *lock(&survey.seen) = seen;
        survey
    }

    /// Each version of one model or of all, or why it cannot be used.
    fn read(&self, repository: &Repository, name: Option<&str>) -> Result<Vec<Found>, Fault> {
        let found = match name {
            Some(name) => {
                let versions = self.or_known(name, repository.versions_of(name));
                let versions = versions.map_err(|error| unusable(&error))?;
                BTreeMap::from([(name.to_owned(), versions)])
            }
            None => self.found(repository).map_err(|error| unusable(&error))?,
        };
        Ok(self.read_found(repository, found))
    }

    /// The versions of each model. Leaves out models with unreadable folders and no cached versions.
    pub(super) fn found(
        &self,
        repository: &Repository,
    ) -> Result<BTreeMap<String, Vec<u64>>, ModelError> {
        let mut all = BTreeMap::new();
        for (name, versions) in repository.found()? {
            if let Ok(versions) = self.or_known(&name, versions) {
                all.insert(name, versions);
            }
        }
        Ok(all)
    }

    /// The versions of a model. If its folder cannot be read now, the cached versions stay in use.
    fn or_known(
        &self,
        name: &str,
        listed: Result<Vec<u64>, ModelError>,
    ) -> Result<Vec<u64>, ModelError> {
        let Err(ModelError::Io { .. }) = &listed else { return listed };
        let known = self.reads.versions(name);
        if known.is_empty() { listed } else { Ok(known) }
    }

    /// Reads a version again if its files have changed, and checks it against its model's config file. `None` if
    /// the content is the same.
    pub(super) fn anew(
        &self,
        repository: &Repository,
        of: &Version,
    ) -> Result<Option<Renewed>, Fault> {
        let Some(now) = self.reads.anew(repository, of)? else { return Ok(None) };
        let config = ModelConfig::of(repository, &of.0);
        let fitting = config.and_then(|config| {
            config.check(repository, &now)?;
            Ok(ModelEntry::new(now.clone(), Arc::new(config)))
        });
        Ok(Some((now, fitting.map_err(|error| faults::deploy(&error)))))
    }

    fn read_found(&self, repository: &Repository, found: BTreeMap<String, Vec<u64>>) -> Vec<Found> {
        let mut all = Vec::new();
        for (name, versions) in found {
            let config = ModelConfig::of(repository, &name).map_err(|error| faults::deploy(&error));
            let config = config.map(Arc::new);
            for number in versions {
                let version = (name.clone(), number);
                let entry = self.reads.entry(repository, &version);
                let entry = entry.and_then(|entry| self.fit(repository, &entry, &config));
                all.push((name.clone(), number, entry));
            }
        }
        all
    }

    /// Combines a version with its model's config, if the two fit.
    fn fit(
        &self,
        repository: &Repository,
        entry: &Entry,
        config: &Result<Arc<ModelConfig>, Fault>,
    ) -> Result<ModelEntry, Fault> {
        let fitting = config.clone().and_then(|config| {
            config.check(repository, entry).map_err(|error| faults::deploy(&error))?;
            Ok(ModelEntry::new(entry.clone(), config))
        });
        let (name, number) = (&entry.name, entry.version);
        let mut refused = lock(&self.refused);
        match &fitting {
            Ok(_) => drop(refused.remove(&(name.clone(), number))),
            Err(Fault { message, .. }) => {
                let told = refused.insert((name.clone(), number), message.clone());
                if told.as_ref() != Some(message) {
                    tracing::warn!(
                        name,
                        version = number,
                        reason = message,
                        "a model cannot be used"
                    );
                }
            }
        }
        fitting
    }

    /// Records that a model's config file is applied.
    pub(super) fn take(&self, name: &str, said: Said) {
        if let Ok(config) = &said
            && !config.ignored.is_empty()
        {
            let ignored = config.ignored.join(", ");
            tracing::info!(name, ignored, "of these fields of a model's file nothing is made");
        }
        lock(&self.configs).insert(name.to_owned(), said);
    }

    /// Notes that a config file was cached. If it was not applied yet, the next look applies it, even if the file
    /// by then is back at its earlier content.
    pub(super) fn will_act_on(&self, name: &str, config: &ModelConfig) {
        let was_acted_on = match lock(&self.configs).get(name) {
            Some(said) => said.as_ref() == Ok(config),
            None => *config == ModelConfig::default(),
        };
        if !was_acted_on {
            self.put_back(name);
        }
    }

    /// Marks a model's config file as not applied.
    pub(super) fn put_back(&self, name: &str) {
        let never = Err("not acted on".to_owned());
        lock(&self.configs).insert(name.to_owned(), never);
    }

    /// Drops versions that are gone. Keeps those that were not read `before` the look: a command may have added
    /// them since.
    pub(super) fn keep_only(&self, found: &BTreeSet<Version>, before: &BTreeSet<Version>) {
        self.reads.retain(|version| found.contains(version) || !before.contains(version));
        lock(&self.refused).retain(|version, _| found.contains(version));
        let names: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
        lock(&self.configs).retain(|name, _| names.contains(name));
    }
}

impl Catalog {
    /// Each version in the folder, of one model or of all, or why it cannot be used.
    pub(super) async fn survey_models(&self, name: Option<String>) -> Result<Vec<Found>, Fault> {
        let (survey, asked) = (Arc::clone(&self.survey), name.clone());
        let read = move |repository: &Repository| Ok(survey.read(repository, asked.as_deref()));
        match (self.files(read).await?, name) {
            (Err(fault), Some(name)) if fault.code == "unknown_model" => {
                let bare = self.files(move |repository| Ok(bare(repository, &name))).await?;
                Err(bare.map_or(fault, |(_, reason)| reason))
            }
            (read, _) => read,
        }
    }

    /// As `survey_models` for all models, with ensembles and with folders that lack models.
    pub(crate) async fn survey(&self) -> Result<Vec<Found>, Fault> {
        let mut all = self.survey_models(None).await?;
        let listed: BTreeSet<String> = all.iter().map(|(name, ..)| name.clone()).collect();
        let bare = self.files(|repository| Ok(bare::all(repository))).await?.into_iter();
        all.extend(bare.filter(|(name, ..)| !listed.contains(name)));
        all.extend(self.look_at_ensembles().await?);
        Ok(all)
    }

    /// Every version of every model, and whether it can be used.
    pub(crate) async fn index(&self) -> Result<Vec<Indexed>, Fault> {
        let all = self.survey().await?.into_iter();
        let indexed = all.map(|(name, version, found)| {
            let readiness = match found {
                Ok(entry) => self.told_readiness(&entry),
                Err(fault) => Readiness::Failed(fault.message),
            };
            Indexed { name, version, readiness }
        });
        Ok(indexed.collect())
    }

    /// The error for a model that was requested and cannot be used.
    pub(super) async fn missing(&self, name: &str, version: Option<u64>) -> Fault {
        let all = match self.survey_models(Some(name.to_owned())).await {
            Ok(all) => all,
            Err(fault) => return fault,
        };
        let asked = |found: &u64| version.is_none_or(|version| version == *found);
        let broken = all.into_iter().rev().find(|(_, found, _)| asked(found));
        if let Some((_, found, Err(fault))) = broken {
            let message =
                format!("model '{name}' version {found} cannot be used: {}", fault.message);
            return Fault { message, ..fault };
        }
        let owned = name.to_owned();
        match self.files(move |repository| repository.get(&owned, version)).await {
            Err(fault) => fault,
            // The version was added since the survey.
            Ok(_) => Fault::unavailable(faults::NOT_READY, format!("model '{name}' has just come")),
        }
    }
}
