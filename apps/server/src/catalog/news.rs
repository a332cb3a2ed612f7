//! Finds changes of models in the repository's folder.

use super::found::{Said, Version, said};
use super::lock;
use super::survey::Survey;
use crate::deployment::ModelConfig;
use lgp_sdk::model::{Error as ModelError, Repository};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The changes of a model since the last look.
#[derive(Debug)]
pub(super) struct News {
    pub(super) name: String,
    /// The content of its config file, if changed.
    pub(super) said: Option<Said>,
    pub(super) gone: Vec<u64>,
    pub(super) changed: Vec<u64>,
    pub(super) come: Vec<u64>,
}

impl News {
    fn is_none(&self) -> bool {
        let versions = [&self.gone, &self.changed, &self.come];
        self.said.is_none() && versions.iter().all(|all| all.is_empty())
    }
}

/// Marks a model as being changed; dropping it ends that.
#[derive(Debug)]
pub(super) struct Busy(Arc<Survey>, String);

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.0.busy).remove(&self.1);
    }
}

impl Survey {
    /// The changes in the folder, except for models that are being changed.
    pub(super) fn news(&self, repository: &Repository) -> Result<Vec<News>, ModelError> {
        // Taken first, so that a version added by a command meanwhile does not count as gone.
        let seen = lock(&self.seen).clone();
        let read = self.reads.all();
        let mut found = self.found(repository)?;
        let all: BTreeSet<Version> = flat(found.clone()).collect();
        self.keep_only(&all, &read);
        for (name, _) in &seen {
            found.entry(name.clone()).or_default();
        }
        let is_idle = |name: &String| !lock(&self.busy).contains(name);
        let idle = found.into_iter().filter(|(name, _)| is_idle(name));
        let news = idle.map(|(name, versions)| {
            let known = seen.range((name.clone(), 0)..=(name.clone(), u64::MAX));
            let gone = known.filter(|of| !all.contains(*of)).map(|(_, version)| *version).collect();
            let is_changed = |it: &u64| self.reads.is_changed(repository, &(name.clone(), *it));
            let changed = versions.iter().copied().filter(is_changed).collect();
            let come = versions
                .iter()
                .copied()
                .filter(|it| !seen.contains(&(name.clone(), *it)))
                .collect();
            let said = if versions.is_empty() { None } else { self.said_anew(repository, &name) };
            News { name, said, gone, changed, come }
        });
        Ok(news.filter(|news| !news.is_none()).collect())
    }

    /// The content of a model's config file, if changed.
    pub(super) fn said_anew(&self, repository: &Repository, name: &str) -> Option<Said> {
        let warn = |error: &ModelError| tracing::warn!(name, %error, "a model's file is not read");
        // An unreadable file may be unchanged; the next look decides.
        let said = said(repository, name).inspect_err(warn).ok()?;
        let is_new = match lock(&self.configs).get(name) {
            Some(before) => *before != said,
            None => said != Ok(ModelConfig::default()),
        };
        is_new.then_some(said)
    }

    /// Marks a model as being changed; `None` if it is marked already.
    pub(super) fn begin(self: &Arc<Self>, name: &str) -> Option<Busy> {
        let is_idle = lock(&self.busy).insert(name.to_owned());
        is_idle.then(|| Busy(Arc::clone(self), name.to_owned()))
    }
}

/// Pairs of name and version.
fn flat(found: BTreeMap<String, Vec<u64>>) -> impl Iterator<Item = Version> {
    let of = |(name, versions): (String, Vec<u64>)| {
        versions.into_iter().map(move |version| (name.clone(), version))
    };
    found.into_iter().flat_map(of)
}
