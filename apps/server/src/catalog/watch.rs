//! Polls the repository's folder. Versions added by hand are loaded, removed ones unloaded, changed ones replaced,
//! and changed config files applied.

use super::found::{Said, Version};
use super::news::News;
use super::{Catalog, ModelEntry, Readiness, lock};
use crate::fault::Fault;
use lgp_inference::Entry;
use lgp_sdk::cluster::ModelRef;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Catalog {
    /// Looks at the folder once. A serving version serves until its successor can. Each model's changes run in a
    /// task of their own: a load may take minutes, and other models must not wait for it.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), Fault> {
        let survey = Arc::clone(&self.survey);
        for news in self.files(move |repository| survey.news(repository)).await? {
            let Some(busy) = self.survey.begin(&news.name) else { continue };
            let catalog = Arc::clone(self);
            tokio::spawn(async move {
                catalog.heed(news).await;
                drop(busy);
            });
        }
        self.look_at_ensembles().await.map(drop)
    }

    async fn heed(&self, news: News) {
        let News { name, said, gone, changed, come } = news;
        let with = |version| (name.clone(), version);
        if let Some(said) = said {
            self.heed_config(&name, said).await;
        }
        for version in gone {
            self.has_gone(&with(version)).await;
        }
        for version in changed {
            let _turn = self.turn(&name).await;
            // The log and the index have the reason of a failure.
            let _ = self.renew(&with(version)).await;
        }
        for version in come {
            self.has_come(&with(version)).await;
        }
    }

    /// Applies a model's changed config file. Versions that contradict it are unloaded; they return once it fits
    /// them.
    async fn heed_config(&self, name: &str, said: Said) {
        let _turn = self.turn(name).await;
        self.survey.take(name, said);
        let had = self.known_sequences(name);
        // Files that changed with it, or did not fit the earlier content, may fit now. The log and the index have
        // the reason of a failure.
        self.renew_all(name, None).await;
        self.forget_settings(name, had).await;
        let usable = match self.numbers(name).await {
            Ok(usable) => usable,
            Err(fault) => {
                // The next look starts with this model again.
                self.survey.put_back(name);
                let reason = fault.message;
                return tracing::warn!(name, reason, "what a model's file says is not done yet");
            }
        };
        // Versions that were not loaded before are not loaded by a fitting config file either.
        let wanted = self.coordinator.models().into_iter();
        let refused = wanted.filter(|m| m.name == name && !usable.contains(&m.version));
        for model in refused {
            lock(&self.survey.seen).remove(&(model.name.clone(), model.version));
            self.coordinator.unload(&model);
            self.sequences.end(name, Some(model.version));
        }
        if usable.is_empty() {
            return;
        }
        tracing::info!(name, "what a model's file says has changed");
        if let Err(fault) = self.apply(name).await {
            let reason = fault.message;
            tracing::warn!(name, reason, "what a model's file says is not done");
        }
    }

    /// Renews, on request, one version or all whose files were changed in place. Returns those whose files cannot
    /// be used, with the reasons.
    pub(super) async fn renew_all(&self, name: &str, version: Option<u64>) -> BTreeMap<u64, Fault> {
        let mut refused = BTreeMap::new();
        let asked = |it: &u64| version.is_none_or(|version| version == *it);
        for version in self.survey.reads.versions(name).into_iter().filter(asked) {
            if let Err(fault) = self.renew(&(name.to_owned(), version)).await {
                refused.insert(version, fault);
            }
        }
        refused
    }

    /// Replaces a version whose files changed, once workers have loaded the new files. If these cannot be used, the
    /// earlier version keeps serving.
    async fn renew(&self, of: &Version) -> Result<(), Fault> {
        let (survey, owned) = (Arc::clone(&self.survey), of.clone());
        let reading = self.survey.reading.acquire().await.map_err(Fault::internal)?;
        let anew = self.files(move |repository| Ok(survey.anew(repository, &owned))).await?;
        drop(reading);
        let (name, version) = of;
        let (now, fault) = match anew {
            Ok(None) => return Ok(()),
            Ok(Some((now, fitting))) => match self.replace(of, &now, fitting).await {
                Ok(()) => {
                    tracing::info!(name, version, "a model's files have changed");
                    return Ok(());
                }
                Err(fault) => (Some(now), fault),
            },
            Err(fault) => (None, fault),
        };
        let reason = &fault.message;
        tracing::warn!(name, version, reason, "a model's files have changed and cannot be used");
        self.refuse(of, now, &fault);
        Err(fault)
    }

    /// Handles changed files that cannot be used. A serving version stays. Otherwise the version takes on the new
    /// files as far as they were read, because the remaining error may pass while they stay the same.
    fn refuse(&self, of: &Version, now: Option<Entry>, fault: &Fault) {
        let Some(before) = self.read_as(of) else { return };
        let is_wanted = self.is_wanted(&before);
        let readiness = self.readiness_of(&before);
        if is_wanted && matches!(readiness, Readiness::Ready | Readiness::Loading) {
            if let Some(Entry { name, version, sha256, .. }) = now {
                lock(&self.failures).remove(&ModelRef { name, version, sha256 });
            }
            self.survey.reads.outdate(of, fault.clone());
            return;
        }
        match now {
            Some(now) => self.survey.reads.replace(now),
            None => self.survey.reads.refuse(of, fault.clone()),
        }
        if is_wanted {
            // The wanted bytes are gone. As an unseen version, the new ones are loaded once usable.
            lock(&self.survey.seen).remove(of);
        }
        self.let_go(&before);
        self.forget(&of.0);
    }

    /// The model of a version as it was read, if it is usable.
    fn read_as(&self, of: &Version) -> Option<ModelRef> {
        let Entry { name, version, sha256, .. } = self.survey.reads.usable(of)?;
        Some(ModelRef { name, version, sha256 })
    }

    /// Whether workers are to have the model.
    fn is_wanted(&self, model: &ModelRef) -> bool {
        self.coordinator.models().contains(model)
    }

    /// Unloads bytes that no longer exist. Tasks that wait for them fail, even if the model was unloaded before,
    /// because these bytes never return.
    fn let_go(&self, model: &ModelRef) {
        self.coordinator.unload(model);
        self.unloads.send_replace(());
    }

    async fn replace(
        &self,
        of: &Version,
        now: &Entry,
        fitting: Result<ModelEntry, Fault>,
    ) -> Result<(), Fault> {
        let before = self.read_as(of);
        let serving = before.as_ref().filter(|before| self.is_wanted(before));
        // If the version does not serve, an error is reported when it is used.
        if serving.is_some() {
            self.load_one(&fitting?).await?;
        }
        self.survey.reads.replace(now.clone());
        self.forget(&of.0);
        if serving.is_some() {
            self.sequences.end(&of.0, Some(of.1));
        }
        if let Some(before) = &before {
            self.let_go(before);
        }
        if serving.is_some() {
            self.tell_others(&of.0).await;
        }
        Ok(())
    }

    async fn has_gone(&self, gone: &Version) {
        let (name, version) = gone;
        let _turn = self.turn(name).await;
        // A command may have removed the version meanwhile.
        if !lock(&self.survey.seen).remove(gone) {
            return;
        }
        tracing::info!(name, version, "a model's files are gone: it is unloaded");
        self.forget(name);
        for model in self.coordinator.models() {
            if model.name == *name && model.version == *version {
                self.coordinator.unload(&model);
            }
        }
        self.sequences.end(name, Some(*version));
        let is_left = self.numbers(name).await.is_ok_and(|left| !left.is_empty());
        if is_left && let Err(fault) = self.after_loss(name).await {
            let reason = fault.message;
            tracing::warn!(name, reason, "what is left of a model does not load");
        }
    }

    async fn has_come(&self, come: &Version) {
        let (name, version) = come;
        let _turn = self.turn(name).await;
        if lock(&self.survey.seen).contains(come) {
            return;
        }
        // A version that is still being copied cannot be used yet; a later look tries again.
        let Ok(reading) = self.survey.reading.acquire().await else { return };
        let all = self.survey_models(Some(name.clone())).await.unwrap_or_default();
        if !all.iter().any(|(_, found, entry)| found == version && entry.is_ok()) {
            return;
        }
        drop(reading);
        self.forget(name);
        lock(&self.survey.seen).insert(come.clone());
        match self.come(name, *version).await {
            Ok(_) => tracing::info!(name, version, "a model has come"),
            Err(fault) => {
                let reason = fault.message;
                tracing::warn!(name, version, reason, "a model that has come does not load");
            }
        }
    }
}
