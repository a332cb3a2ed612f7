//! Looking at the repository's folder again and again: versions that were put there by hand are
//! loaded, those that were taken away are unloaded, those whose files have changed are replaced, and what
//! models' own files say by now is done.

use super::news::News;
use super::survey::{Said, Version};
use super::{Catalog, ModelEntry, Readiness, lock};
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
        let had = self.known_sequences(name);
        // Files that have changed together with it, or that did not fit what it said before, may fit it now. The
        // log and the index say why not.
        self.renew_all(name, None).await;
        self.forget_settings(name, had).await;
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

    /// Keeps what serves as it is. What does not serve becomes what its files are, as far as they could be read:
    /// what else is wrong may pass while they stay the same.
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
            // What workers are to have is not there any more; what it becomes is loaded.
            lock(&self.survey.seen).remove(of);
        }
        self.let_go(&before);
        self.forget(&of.0);
    }

    /// What a version was read as, if it can be used.
    fn read_as(&self, of: &Version) -> Option<ModelRef> {
        let Entry { name, version, sha256, .. } = self.survey.reads.usable(of)?;
        Some(ModelRef { name, version, sha256 })
    }

    /// Whether workers are to have it.
    fn is_wanted(&self, model: &ModelRef) -> bool {
        self.coordinator.models().contains(model)
    }

    /// Has workers let go of bytes that are not there any more. Tasks that wait for them fail, also where the
    /// model was unloaded: they wait for what does not come back.
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
        // Of one that does not serve it is told where somebody wants to use it.
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
