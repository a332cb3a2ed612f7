//! What lies in the repository's folder: the versions that can be used, and what is wrong with the
//! others.

use super::bare::{self, bare};
use super::{Catalog, ModelEntry, Readiness, lock};
use crate::fault::Fault;
use crate::faults;
use lgp_sdk::{DeployError, Entry, ModelConfig, ModelError, Repository, last_loaded};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// A model and a version of it.
pub(super) type Version = (String, u64);

/// A model and a version of it, or what is wrong with it.
pub(super) type Found = (String, u64, Result<ModelEntry, Fault>);

/// What is known of the folder between two looks at it.
#[derive(Debug)]
pub(super) struct Survey {
    /// What was wrong with a version when its files had this time and size: it is not read again before
    /// they change.
    broken: Mutex<HashMap<Version, (Stamp, Fault)>>,
    /// Why a version does not fit what its model's own file says, as the log was told. Such a file is read
    /// at each look, for what it says may also become true.
    refused: Mutex<HashMap<Version, String>>,
    /// What the file of each model said when it was acted on.
    configs: Mutex<HashMap<String, Said>>,
    /// Versions that were found to be usable: what is not among them is new.
    pub(super) seen: Mutex<BTreeSet<Version>>,
}

type Stamp = (Option<SystemTime>, u64);

/// What a model's own file says, or why it says nothing.
pub(super) type Said = Result<ModelConfig, String>;

/// What the repository's index says of a version.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) readiness: Readiness,
}

impl Survey {
    /// Of a repository whose present versions are nothing new, as far as they can be used.
    pub(super) fn of(repository: &Repository) -> Self {
        let survey = Self {
            broken: Mutex::default(),
            refused: Mutex::default(),
            configs: Mutex::default(),
            seen: Mutex::default(),
        };
        let found = repository.found().unwrap_or_default();
        for name in found.keys() {
            // What is not read now is news later.
            if let Ok(said) = said(repository, name) {
                survey.take(name, said);
            }
        }
        let usable = survey.read_found(repository, found).into_iter();
        let usable =
            usable.filter_map(|(name, version, entry)| entry.ok().map(|_| (name, version)));
        let mut seen: BTreeSet<Version> = usable.collect();
        // Those that only their model's file refuses are loaded once it is mended, if they were loaded last.
        let unloaded = |(name, version): &&Version| {
            let last = last_loaded(repository, name).ok().flatten();
            last.is_some_and(|last| last.known.contains(version) && !last.loaded.contains(version))
        };
        seen.extend(lock(&survey.refused).keys().filter(unloaded).cloned());
        *lock(&survey.seen) = seen;
        survey
    }

    /// Each version of a model, or of all, or what is wrong with it.
    fn read(&self, repository: &Repository, name: Option<&str>) -> Result<Vec<Found>, ModelError> {
        let found = match name {
            Some(name) => BTreeMap::from([(name.to_owned(), repository.versions_of(name)?)]),
            None => repository.found()?,
        };
        Ok(self.read_found(repository, found))
    }

    fn read_found(&self, repository: &Repository, found: BTreeMap<String, Vec<u64>>) -> Vec<Found> {
        let mut all = Vec::new();
        for (name, versions) in found {
            let config = ModelConfig::of(repository, &name).map_err(|error| faults::deploy(&error));
            let config = config.map(Arc::new);
            for number in versions {
                let version = (name.clone(), number);
                let entry = self.entry(repository, &version);
                let entry = entry.and_then(|entry| self.fit(repository, &entry, &config));
                all.push((name.clone(), number, entry));
            }
        }
        all
    }

    /// A version with what its model's file says, if the two fit.
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

    fn entry(&self, repository: &Repository, version: &Version) -> Result<Entry, Fault> {
        let (name, number) = version;
        let stamp = stamp(&repository.root().join(name).join(number.to_string()));
        if let Some((then, fault)) = lock(&self.broken).get(version)
            && *then == stamp
        {
            return Err(fault.clone());
        }
        let read = repository.get(name, Some(*number));
        let mut broken = lock(&self.broken);
        match read {
            Ok(entry) => {
                broken.remove(version);
                Ok(entry)
            }
            Err(error) => {
                tracing::warn!(name, version = number, %error, "a model cannot be used");
                let fault = faults::model(&error);
                broken.insert(version.clone(), (stamp, fault.clone()));
                Err(fault)
            }
        }
    }

    /// Whether a model's file says something else than it did when this was asked last.
    pub(super) fn take(&self, name: &str, said: Said) -> bool {
        let mut configs = lock(&self.configs);
        let is_new = match configs.get(name) {
            Some(before) => *before != said,
            None => said != Ok(ModelConfig::default()),
        };
        if let (true, Ok(config)) = (is_new, &said)
            && !config.ignored.is_empty()
        {
            let ignored = config.ignored.join(", ");
            tracing::info!(name, ignored, "of these fields of a model's file nothing is made");
        }
        configs.insert(name.to_owned(), said);
        is_new
    }

    /// What a model's file says was not acted on after all.
    pub(super) fn put_back(&self, name: &str) {
        let never = Err("not acted on".to_owned());
        lock(&self.configs).insert(name.to_owned(), never);
    }

    /// Forgets what is not there any more.
    pub(super) fn keep_only(&self, found: &BTreeSet<Version>) {
        lock(&self.broken).retain(|version, _| found.contains(version));
        lock(&self.refused).retain(|version, _| found.contains(version));
        let names: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
        lock(&self.configs).retain(|name, _| names.contains(name));
    }
}

/// What the file of a model says now.
///
/// # Errors
/// Where it cannot be read now, whatever it says.
pub(super) fn said(repository: &Repository, name: &str) -> Result<Said, ModelError> {
    match ModelConfig::of(repository, name) {
        Err(DeployError::Model(error)) => Err(error),
        read => Ok(read.map_err(|error| error.to_string())),
    }
}

/// The last time and all bytes of a version's files: its weights may come after its model.
fn stamp(folder: &Path) -> Stamp {
    let mut stamp: Stamp = (None, 0);
    for item in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (modified, bytes) = match item.metadata() {
            Ok(found) if found.is_dir() => self::stamp(&item.path()),
            Ok(found) => (found.modified().ok(), found.len()),
            Err(_) => continue,
        };
        stamp = (stamp.0.max(modified), stamp.1.saturating_add(bytes));
    }
    stamp
}

/// Versions by name, one by one.
pub(super) fn flat(found: BTreeMap<String, Vec<u64>>) -> impl Iterator<Item = Version> {
    let of = |(name, versions): (String, Vec<u64>)| {
        versions.into_iter().map(move |version| (name.clone(), version))
    };
    found.into_iter().flat_map(of)
}

impl Catalog {
    /// Each version that is in the folder, of one model or of all, or what is wrong with it.
    pub(super) async fn survey_models(&self, name: Option<String>) -> Result<Vec<Found>, Fault> {
        let (survey, asked) = (Arc::clone(&self.survey), name.clone());
        let read = self.files(move |repository| survey.read(repository, asked.as_deref())).await;
        match (read, name) {
            (Err(fault), Some(name)) if fault.code == "unknown_model" => {
                let bare = self.files(move |repository| Ok(bare(repository, &name))).await?;
                Err(bare.map_or(fault, |(_, reason)| reason))
            }
            (read, _) => read,
        }
    }

    /// The same of all, of each ensemble, and of folders that should have models.
    pub(crate) async fn survey(&self) -> Result<Vec<Found>, Fault> {
        let mut all = self.survey_models(None).await?;
        all.extend(self.files(|repository| Ok(bare::all(repository))).await?);
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

    /// Why a model that is asked for is not to be had.
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
            // It came in this moment.
            Ok(_) => Fault::unavailable(super::NOT_READY, format!("model '{name}' has just come")),
        }
    }
}
