//! Looking at the repository's folder again and again: versions that were put there by hand are
//! loaded, those that were taken away are unloaded, those whose files have changed are replaced, and what
//! models' own files say by now is done.

use super::news::News;
use super::survey::{Said, Version};
use super::{Catalog, Readiness, lock};
use crate::fault::Fault;
use lgp_sdk::{Entry, ModelRef};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Catalog {
    /// Looks at the folder once. What serves goes on serving until what follows it can. Nobody waits for what
    /// is to be done about a model: it may take minutes to load, and others have come meanwhile.
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
            // The log and the index say why not.
            let _ = self.renew(&with(version)).await;
        }
        for version in come {
            self.has_come(&with(version)).await;
        }
    }

    /// Does what a model's own file says by now. Versions that it contradicts are unloaded, and come back once
    /// it fits them.
    async fn heed_config(&self, name: &str, said: Said) {
        let _turn = self.turn(name).await;
        self.survey.take(name, said);
        self.forget_settings(name, self.known_sequences(name)).await;
        let usable = match self.numbers(name).await {
            Ok(usable) => usable,
            Err(fault) => {
                // The next look begins with it again.
                self.survey.put_back(name);
                let reason = fault.message;
                return tracing::warn!(name, reason, "what a model's file says is not done yet");
            }
        };
        // Those that nobody had loaded are not loaded once they fit, either.
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

    /// The same of versions whose files were changed in place, of one or of all, because somebody says so.
    /// Answers those whose files cannot be used, with the reasons.
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

    /// Has the changed files of a version take the place of those that serve, once workers have loaded them.
    /// Where they cannot be used, what was there before serves on.
    async fn renew(&self, of: &Version) -> Result<(), Fault> {
        let (survey, owned) = (Arc::clone(&self.survey), of.clone());
        let reading = self.survey.reading.acquire().await.map_err(Fault::internal)?;
        let anew = self.files(move |repository| Ok(survey.anew(repository, &owned))).await?;
        drop(reading);
        let fault = match anew {
            Ok(None) => return Ok(()),
            Ok(Some(now)) => match self.replace(of, now).await {
                Ok(()) => {
                    let (name, version) = of;
                    tracing::info!(name, version, "a model's files have changed");
                    return Ok(());
                }
                Err(fault) => fault,
            },
            Err(fault) => fault,
        };
        let (name, version) = of;
        let reason = &fault.message;
        tracing::warn!(name, version, reason, "a model's files have changed and cannot be used");
        let serving = self.served_as(of);
        let has = |model: &ModelRef| {
            matches!(self.readiness_of(model), Readiness::Ready | Readiness::Loading)
        };
        let serves_on = serving.as_ref().is_some_and(has);
        self.survey.reads.refuse(of, fault.clone(), serves_on);
        if !serves_on {
            if let Some(model) = serving {
                // What workers are to have is not there any more; what it becomes is loaded.
                lock(&self.survey.seen).remove(of);
                self.coordinator.unload(&model);
            }
            self.forget(name);
        }
        Err(fault)
    }

    /// What workers are to have of a version.
    fn served_as(&self, of: &Version) -> Option<ModelRef> {
        let Entry { name, version, sha256, .. } = self.survey.reads.usable(of)?;
        let model = ModelRef { name, version, sha256 };
        self.coordinator.models().contains(&model).then_some(model)
    }

    async fn replace(
        &self,
        of: &Version,
        (now, entry): (Entry, super::ModelEntry),
    ) -> Result<(), Fault> {
        let before = self.served_as(of);
        if before.is_some()
            && let Err(fault) = self.load_one(&entry).await
        {
            lock(&self.failures).remove(entry.model());
            return Err(fault);
        }
        self.survey.reads.replace(now);
        self.forget(&of.0);
        if let Some(before) = before {
            self.coordinator.unload(&before);
            self.unloads.send_replace(());
            self.sequences.end(&of.0, Some(of.1));
            self.tell_others(&of.0).await;
        }
        Ok(())
    }

    async fn has_gone(&self, gone: &Version) {
        let (name, version) = gone;
        let _turn = self.turn(name).await;
        // A command may have removed it meanwhile.
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
        // One that is still being copied cannot be used yet, and is looked at again.
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
