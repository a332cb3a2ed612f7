//! Resolves names in inference requests: models and aliases.

use super::{Catalog, ModelEntry};
use crate::aliases::{Alias, Aliases, Shadow};
use crate::fault::Fault;
use std::sync::Arc;

/// The meaning of a name in a request.
#[derive(Debug)]
pub(crate) struct Named {
    /// The model, or the first available target of an alias; all targets have the same inputs and outputs.
    entry: ModelEntry,
    /// Whether the name came with a version.
    has_version: bool,
    /// Whether the entry is the one that will answer.
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

    /// Whether a version other than the chosen one may answer.
    fn leaves_open(&self, chosen: &ModelEntry) -> bool {
        let Some((_, alias)) = &self.alias else { return !self.has_version };
        let mut targets = alias.targets.iter().filter(|target| target.model == chosen.name());
        targets.all(|target| target.version != Some(chosen.version()))
    }
}

impl Catalog {
    /// Resolves a name; for a model without a version, to the newest.
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

    /// The first available target of an alias; its inputs and outputs are those of all targets.
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

    /// The model that will answer. For an alias, the weights choose it, always the same one for the same key. A
    /// newer version may have other inputs.
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

    /// Replaces the entry by the model that will answer, for a request that is made to fit that model.
    pub(crate) async fn settled(&self, named: Named) -> Result<Named, Fault> {
        let entry = self.answering(&named, None).await?;
        Ok(Named { entry, is_settled: true, ..named })
    }

    /// The chosen version, or its successor if it is not ready.
    ///
    /// # Errors
    /// 503 if neither is ready.
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

    /// A ready version to replace the chosen one, with the same inputs and outputs. For a version that the request
    /// named, that is the same version with changed files.
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

    /// The shadow that will run a copy of this request, if any.
    pub(crate) fn shadow(&self, named: &Named) -> Option<Shadow> {
        let (name, alias) = named.alias.as_ref()?;
        let shadow = alias.shadow.as_ref()?;
        let is_of_share = self.aliases.number(name, None) % 100 < u64::from(shadow.percent);
        is_of_share.then(|| shadow.clone())
    }

    /// Makes or replaces an alias. Its models must exist and have the same inputs and outputs.
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
