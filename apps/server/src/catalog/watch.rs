//! Looking at the repository's folder again and again: versions that were put there by hand are
//! loaded, and those that were taken away are unloaded.

use super::survey::{Version, flat};
use super::{Catalog, lock};
use crate::fault::Fault;
use std::collections::BTreeSet;

impl Catalog {
    /// Looks at the folder once. What serves goes on serving until what follows it can.
    pub(crate) async fn refresh(&self) -> Result<(), Fault> {
        let _changing = self.changing.lock().await;
        let found: BTreeSet<Version> = flat(self.files(|r| r.found()).await?).collect();
        let seen = lock(&self.survey.seen).clone();
        self.survey.keep_only(&found);
        for (name, version) in seen.difference(&found) {
            tracing::info!(name, version, "a model's files are gone: it is unloaded");
            for model in self.coordinator.models() {
                if model.name == *name && model.version == *version {
                    self.coordinator.unload(&model);
                }
            }
            lock(&self.survey.seen).remove(&(name.clone(), *version));
            self.forget(name);
        }
        for (name, version) in found.difference(&seen) {
            self.forget(name);
            // One that is still being copied cannot be used yet, and is looked at again.
            if self.get(name, Some(*version)).await.is_err() {
                continue;
            }
            lock(&self.survey.seen).insert((name.clone(), *version));
            match self.come(name, *version).await {
                Ok(_) => tracing::info!(name, version, "a model has come"),
                Err(fault) => {
                    let reason = fault.message;
                    tracing::warn!(name, version, reason, "a model that has come does not load");
                }
            }
        }
        Ok(())
    }
}
