//! Names as requests for inference use them: a model's, or that of an alias.

use super::{Catalog, ModelEntry};
use crate::aliases::{Alias, Aliases, Shadow};
use crate::fault::Fault;
use std::sync::Arc;

/// What a name in a request stands for.
#[derive(Debug)]
pub(crate) struct Named {
    /// The model, or the first of an alias: its inputs and outputs are those of all of them.
    entry: ModelEntry,
    /// Whether the name came with a version.
    has_version: bool,
    /// Whether the entry is the one that is to answer.
    is_settled: bool,
    alias: Option<(String, Arc<Alias>)>,
}

impl From<ModelEntry> for Named {
    fn from(entry: ModelEntry) -> Self {
        Self { entry, has_version: true, is_settled: true, alias: None }
    }
}

impl Named {
    pub(crate) fn entry(&self) -> &ModelEntry {
        &self.entry
    }

    pub(crate) fn is_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// Whether another version of a model may answer than the one that was chosen.
    fn leaves_open(&self, chosen: &ModelEntry) -> bool {
        let Some((_, alias)) = &self.alias else { return !self.has_version };
        let mut targets = alias.targets.iter().filter(|target| target.model == chosen.name());
        targets.all(|target| target.version != Some(chosen.version()))
    }
}

impl Catalog {
    /// What a name stands for; of a model without a version it is the newest.
    pub(crate) async fn named(&self, name: &str, version: Option<u64>) -> Result<Named, Fault> {
        let Some(alias) = self.aliases.get(name) else {
            let entry = self.get(name, version).await?;
            let has_version = version.is_some();
            return Ok(Named { entry, has_version, is_settled: true, alias: None });
        };
        if let Some(version) = version {
            let what = format!("'{name}' is an alias and has no version {version}");
            return Err(Fault::bad_input(what + ", expected the name alone"));
        }
        let entry = self.first_of(name, &alias).await?;
        let alias = Some((name.to_owned(), alias));
        Ok(Named { entry, has_version: false, is_settled: false, alias })
    }

    /// The first of an alias's targets that is there: what is known of one is known of all.
    async fn first_of(&self, name: &str, alias: &Alias) -> Result<ModelEntry, Fault> {
        let mut missing = None;
        for target in &alias.targets {
            match self.get(&target.model, target.version).await {
                Ok(entry) => return Ok(entry),
                Err(fault) => missing = missing.or(Some(fault)),
            }
        }
        Err(missing.unwrap_or_else(|| Fault::internal(format!("alias '{name}' is empty"))))
    }

    /// The model that is to answer: of an alias one by weight, for the same key always the same. A newer
    /// version may have come with other inputs.
    pub(crate) async fn answering(
        &self,
        named: &Named,
        key: Option<&str>,
    ) -> Result<ModelEntry, Fault> {
        let Some((name, alias)) = named.alias.as_ref().filter(|_| !named.is_settled) else {
            return Ok(named.entry.clone());
        };
        let target = alias.at(self.aliases.number(name, key));
        let target = target.ok_or_else(|| Fault::internal(format!("alias '{name}' is empty")))?;
        self.get(&target.model, target.version).await
    }

    /// The same with the model that is to answer as its entry: for a request that is made to fit that one.
    pub(crate) async fn settled(&self, named: Named) -> Result<Named, Fault> {
        let entry = self.answering(&named, None).await?;
        Ok(Named { entry, is_settled: true, ..named })
    }

    /// The version that was chosen, or its successor where it is not ready.
    ///
    /// # Errors
    /// 503 where neither is.
    pub(crate) async fn ready(
        &self,
        named: &Named,
        chosen: ModelEntry,
    ) -> Result<ModelEntry, Fault> {
        match self.require_ready(&chosen) {
            Ok(()) => Ok(chosen),
            Err(fault) => self.successor(named, &chosen).await.ok_or(fault),
        }
    }

    /// The version that answers to a name now, where the one that was chosen cannot any more; of a version
    /// that the request named, what its files have become. None where there is no other that does the same.
    pub(crate) async fn successor(&self, named: &Named, chosen: &ModelEntry) -> Option<ModelEntry> {
        let version = (!named.leaves_open(chosen)).then(|| chosen.version());
        let other = self.get(chosen.name(), version).await.ok()?;
        let is_alike = other.inputs() == chosen.inputs() && other.outputs() == chosen.outputs();
        let is_other = other.model() != chosen.model() && is_alike;
        (is_other && self.require_ready(&other).is_ok()).then_some(other)
    }

    pub(crate) fn aliases(&self) -> &Aliases {
        &self.aliases
    }

    /// The shadow that is to run a copy of a request, if one is.
    pub(crate) fn shadow(&self, named: &Named) -> Option<Shadow> {
        let (name, alias) = named.alias.as_ref()?;
        let shadow = alias.shadow.as_ref()?;
        let is_of_share = self.aliases.number(name, None) % 100 < u64::from(shadow.percent);
        is_of_share.then(|| shadow.clone())
    }

    /// Makes or replaces an alias, whose models must be there and have the same inputs and outputs.
    pub(crate) async fn set_alias(self: &Arc<Self>, name: &str, alias: Alias) -> Result<(), Fault> {
        alias.check()?;
        let _turn = self.naming.lock().await;
        Self::refuse_reserved(name)?;
        match self.get(name, None).await {
            Ok(_) => {
                let what = format!("'{name}' is a model, expected a name that none has");
                return Err(Fault::conflict(what));
            }
            Err(fault) if fault.code == "unknown_model" => {}
            Err(fault) => return Err(fault),
        }
        let mut entries: Vec<ModelEntry> = Vec::new();
        for target in &alias.targets {
            entries.push(self.get(&target.model, target.version).await?);
        }
        if let Some(shadow) = &alias.shadow {
            entries.push(self.get(&shadow.model, shadow.version).await?);
            if let Some(entry) = entries.iter().find(|entry| entry.ensemble().is_some()) {
                let what = format!("'{}' is an ensemble, expected models", entry.name());
                return Err(Fault::bad_input(what + " beside a shadow"));
            }
        }
        let same =
            |a: &ModelEntry, b: &ModelEntry| a.inputs() == b.inputs() && a.outputs() == b.outputs();
        for pair in entries.windows(2) {
            let [one, other] = pair else { continue };
            let keep = |entry: &ModelEntry| entry.stateful().is_some();
            if keep(one) != keep(other) {
                let (one, other) = (one.model(), other.model());
                let what = format!("one of {one} and {other} keeps sequences and one does not");
                return Err(Fault::bad_input(what + ", expected the same"));
            }
            if !same(one, other) {
                let (one, other) = (one.model(), other.model());
                let what = format!("inputs or outputs of {one} and {other} differ");
                return Err(Fault::bad_input(what + ", expected the same"));
            }
        }
        let (catalog, name) = (Arc::clone(self), name.to_owned());
        let write = move || catalog.aliases.set(&name, alias);
        tokio::task::spawn_blocking(write).await.map_err(Fault::internal)?
    }

    /// Removes an alias; its models stay.
    pub(crate) async fn remove_alias(self: &Arc<Self>, name: &str) -> Result<(), Fault> {
        let _turn = self.naming.lock().await;
        let (catalog, name) = (Arc::clone(self), name.to_owned());
        let write = move || catalog.aliases.remove(&name);
        tokio::task::spawn_blocking(write).await.map_err(Fault::internal)?
    }
}
