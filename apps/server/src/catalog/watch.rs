//! Looking at the repository's folder again and again: versions that were put there by hand are
//! loaded, those that were taken away are unloaded, and what models' own files say by now is done.

use super::survey::{Version, flat, said};
use super::{Catalog, lock};
use crate::fault::Fault;
use std::collections::BTreeSet;

impl Catalog {
    /// Looks at the folder once. What serves goes on serving until what follows it can.
    pub(crate) async fn refresh(&self) -> Result<(), Fault> {
        let found: BTreeSet<Version> = flat(self.files(|r| r.found()).await?).collect();
        let names: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
        for name in names {
            self.look_at_config(name).await?;
        }
        let seen = lock(&self.survey.seen).clone();
        self.survey.keep_only(&found);
        for gone in seen.difference(&found) {
            self.has_gone(gone).await;
        }
        for come in found.difference(&seen) {
            self.has_come(come).await;
        }
        self.look_at_ensembles().await.map(drop)
    }

    /// Does what a model's own file says by now, if that is something else than before. Versions that it
    /// contradicts are unloaded, and come back once it fits them.
    async fn look_at_config(&self, name: &str) -> Result<(), Fault> {
        let owned = name.to_owned();
        let now = match self.files(move |r| said(r, &owned)).await {
            Ok(now) => now,
            // What it says may be the same as before: the next look tells.
            Err(fault) => {
                tracing::warn!(name, reason = fault.message, "a model's file is not read");
                return Ok(());
            }
        };
        if !self.survey.take(name, now) {
            return Ok(());
        }
        let _turn = self.turn(name).await;
        self.forget_settings(name, self.known_sequences(name)).await;
        let usable = match self.numbers(name).await {
            Ok(usable) => usable,
            Err(fault) => {
                // The next look begins with it again.
                self.survey.put_back(name);
                return Err(fault);
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
            return Ok(());
        }
        tracing::info!(name, "what a model's file says has changed");
        if let Err(fault) = self.apply(name).await {
            let reason = fault.message;
            tracing::warn!(name, reason, "what a model's file says is not done");
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
        let all = self.survey_models(Some(name.clone())).await.unwrap_or_default();
        if !all.iter().any(|(_, found, entry)| found == version && entry.is_ok()) {
            return;
        }
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
