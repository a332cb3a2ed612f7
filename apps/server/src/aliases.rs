//! Aliases: names that stand for weighted models or versions, kept in a file beside the repository.

use crate::fault::Fault;
use crate::faults::disk;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file beside the repository.
const FILE: &str = "aliases.json";
/// The most aliases of one server.
const ALIASES_MAX: usize = 256;
/// The most targets of one alias.
const TARGETS_MAX: usize = 16;
/// The largest weight.
const WEIGHT_MAX: u32 = 1_000_000;

/// A model to which an alias may lead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) model: String,
    /// The version; when unset, the newest at the time of a request.
    #[serde(default)]
    pub(crate) version: Option<u64>,
    /// The target's share of requests, relative to the other weights.
    pub(crate) weight: u32,
}

/// The targets of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alias {
    pub(crate) targets: Vec<Target>,
    /// A model that also runs copies of the requests, without effect on callers.
    #[serde(default)]
    pub(crate) shadow: Option<Shadow>,
}

/// A model that runs copies of requests for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shadow {
    pub(crate) model: String,
    /// The version; when unset, the newest at the time of a request.
    #[serde(default)]
    pub(crate) version: Option<u64>,
    /// The share of requests that are copied, in per cent.
    pub(crate) percent: u32,
}

impl Alias {
    /// Refuses an alias that is invalid with any set of models.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let count = self.targets.len();
        if !(1..=TARGETS_MAX).contains(&count) {
            let what = format!("{count} targets given, expected 1 to {TARGETS_MAX}");
            return Err(Fault::bad_input(what));
        }
        if let Some(Shadow { percent, .. }) = &self.shadow
            && !(1..=100).contains(percent)
        {
            let what = format!("the percent of the shadow is {percent}, expected 1 to 100");
            return Err(Fault::bad_input(what));
        }
        for Target { model, weight, .. } in &self.targets {
            if !(1..=WEIGHT_MAX).contains(weight) {
                let expected = format!("expected 1 to {WEIGHT_MAX}");
                let what = format!("the weight of '{model}' is {weight}, {expected}");
                return Err(Fault::bad_input(what));
            }
        }
        Ok(())
    }

    /// The target of a number; numbers are spread over the targets by weight.
    pub(crate) fn at(&self, number: u64) -> Option<&Target> {
        let total: u64 = self.targets.iter().map(|target| u64::from(target.weight)).sum();
        let mut left = number.checked_rem(total)?;
        self.targets.iter().find(|target| {
            let weight = u64::from(target.weight);
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        })
    }
}

/// The aliases of a server.
#[derive(Debug)]
pub(crate) struct Aliases {
    file: PathBuf,
    table: Mutex<BTreeMap<String, Arc<Alias>>>,
    /// Why the file could not be read. Changes are refused until it can.
    damaged: Option<String>,
    random: RandomState,
    chosen: AtomicU64,
}

impl Aliases {
    /// The aliases that are stored beside a repository.
    pub(crate) fn beside(repository: &Path) -> Self {
        let file = repository.parent().unwrap_or(repository).join(FILE);
        let read = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice::<BTreeMap<String, Alias>>(&text)
                .map(|table| table.into_iter().map(|(name, it)| (name, Arc::new(it))).collect())
                .map_err(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error.to_string()),
        };
        let (table, damaged) = match read {
            Ok(table) => (table, None),
            Err(reason) => {
                let file = file.display();
                tracing::error!(%file, reason, "the aliases cannot be read, and none is in force");
                (BTreeMap::new(), Some(reason))
            }
        };
        let (random, chosen) = (RandomState::new(), AtomicU64::new(0));
        Self { file, table: Mutex::new(table), damaged, random, chosen }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Alias>>> {
        // Changes replace the table as a whole, so a panic cannot damage it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The alias of this name, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Alias>> {
        self.table().get(name).cloned()
    }

    /// Every alias, by name.
    pub(crate) fn list(&self) -> Vec<(String, Arc<Alias>)> {
        self.table().iter().map(|(name, alias)| (name.clone(), Arc::clone(alias))).collect()
    }

    /// The number that selects a request's target: constant for the same key, pseudo-random without a key.
    pub(crate) fn number(&self, name: &str, key: Option<&str>) -> u64 {
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            return self.random.hash_one(self.chosen.fetch_add(1, Relaxed));
        };
        let digest = Sha256::new().chain_update(name).chain_update([0]).chain_update(key);
        let digest: [u8; 32] = digest.finalize().into();
        digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// Makes or replaces an alias. Blocks on the disk.
    pub(crate) fn set(&self, name: &str, alias: Alias) -> Result<(), Fault> {
        self.change(|table| {
            if table.len() >= ALIASES_MAX && !table.contains_key(name) {
                let what = format!("{ALIASES_MAX} aliases are kept, remove some");
                return Err(Fault::bad_input(what));
            }
            table.insert(name.to_owned(), Arc::new(alias));
            Ok(())
        })
    }

    /// Removes an alias. Blocks on the disk.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Fault> {
        self.change(|table| {
            let unknown = || {
                let name: String = name.chars().take(64).collect();
                Fault::not_found("unknown_alias", format!("no alias '{name}'"))
                    .hint("radeon-cluster models alias ls")
            };
            table.remove(name).map(drop).ok_or_else(unknown)
        })
    }

    /// Changes file and table, or neither. [`Catalog`](crate::catalog::Catalog) serializes the calls.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Arc<Alias>>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Some(reason) = &self.damaged {
            let file = self.file.display();
            return Err(Fault::internal(format!("{file} cannot be read: {reason}"))
                .hint("the log names the file: restore or delete it, and start again"));
        }
        let mut next = self.table().clone();
        change(&mut next)?;
        self.write(&next).map_err(|error| disk(&error))?;
        *self.table() = next;
        Ok(())
    }

    fn write(&self, table: &BTreeMap<String, Arc<Alias>>) -> std::io::Result<()> {
        let folder = self.file.parent().unwrap_or(&self.file);
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let plain: BTreeMap<&String, &Alias> =
            table.iter().map(|(name, alias)| (name, &**alias)).collect();
        file.write_all(&serde_json::to_vec_pretty(&plain)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.file).map(drop).map_err(|error| error.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(weights: &[u32]) -> Alias {
        let target = |(n, weight): (usize, &u32)| Target {
            model: format!("m{n}"),
            version: None,
            weight: *weight,
        };
        Alias { targets: weights.iter().enumerate().map(target).collect(), shadow: None }
    }

    #[test]
    fn numbers_are_spread_by_weight() {
        let alias = alias(&[90, 10]);
        let shares = |number: u64| alias.at(number).expect("there are two").model.clone();
        let to_first = (0..1_000).filter(|number| shares(*number) == "m0").count();
        assert_eq!(to_first, 900);
        assert_eq!((shares(89), shares(90), shares(99)), ("m0".into(), "m1".into(), "m1".into()));
    }

    #[test]
    fn a_key_always_gives_the_same_number_and_keys_are_spread() {
        let folder = tempfile::tempdir().expect("a folder");
        let aliases = Aliases::beside(&folder.path().join("models"));
        let alias = alias(&[50, 50]);
        let first = |name: &str, key: Option<&str>| {
            alias.at(aliases.number(name, key)).expect("there are two").model == "m0"
        };
        let keys: Vec<String> = (0..1_000).map(|n| format!("key-{n}")).collect();
        let chosen: Vec<bool> = keys.iter().map(|key| first("a", Some(key))).collect();
        let again: Vec<bool> = keys.iter().map(|key| first("a", Some(key))).collect();
        assert_eq!(chosen, again);
        assert_ne!(chosen, keys.iter().map(|key| first("b", Some(key))).collect::<Vec<_>>());
        for key in [None, Some("")] {
            let share = (0..1_000).filter(|_| first("a", key)).count();
            assert!((300..700).contains(&share), "{share} of 1000");
        }
        assert!((300..700).contains(&chosen.iter().filter(|first| **first).count()));
    }

    #[test]
    fn aliases_are_kept_and_what_cannot_be_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("models");
        let aliases = Aliases::beside(&repository);
        aliases.set("prod", alias(&[1])).expect("room");
        aliases.set("test", alias(&[2, 3])).expect("room");
        aliases.remove("prod").expect("it is there");
        assert!(aliases.remove("prod").is_err());
        let again = Aliases::beside(&repository);
        assert_eq!(again.list(), [("test".to_owned(), Arc::new(alias(&[2, 3])))]);
        for (wrong, part) in [
            (alias(&[]), "0 targets"),
            (alias(&[1; TARGETS_MAX + 1]), "17 targets"),
            (alias(&[1, 0]), "weight of 'm1' is 0"),
            (alias(&[WEIGHT_MAX + 1]), "1000001"),
        ] {
            let fault = wrong.check().expect_err("it cannot");
            assert!(fault.message.contains(part), "{}", fault.message);
        }
        std::fs::write(folder.path().join(FILE), "{").expect("ours");
        let damaged = Aliases::beside(&repository);
        assert!(damaged.list().is_empty() && damaged.set("a", alias(&[1])).is_err());
        assert_eq!(std::fs::read(folder.path().join(FILE)).expect("left alone"), b"{");
    }

    #[test]
    fn there_are_only_so_many() {
        let folder = tempfile::tempdir().expect("a folder");
        let aliases = Aliases::beside(&folder.path().join("models"));
        let full = (0..ALIASES_MAX).map(|n| (format!("a{n}"), Arc::new(alias(&[1]))));
        *aliases.table() = full.collect();
        assert!(aliases.set("one-more", alias(&[1])).is_err());
        aliases.set("a0", alias(&[2])).expect("it takes no more room");
    }
}
