//! Cached reads of each version's files, and checks whether the files have changed.

use super::found::{Version, unusable};
use super::lock;
use crate::fault::Fault;
use lgp_inference::Entry;
use lgp_sdk::model::Repository;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

/// The most levels of folders within a version's folder that are checked.
const DEPTH_MAX: usize = 8;

/// The versions that were read. A usable entry stays until its changed files replace it, because a file that is
/// being overwritten may be incomplete.
#[derive(Debug, Default)]
pub(super) struct Reads(Mutex<HashMap<Version, Read>>);

#[derive(Debug)]
struct Read {
    /// Stamp of the files as last read.
    stamp: Stamp,
    /// Stamp of changed files at the last look; they may still be in the middle of a write.
    coming: Option<Stamp>,
    entry: Result<Entry, Fault>,
    /// Why the present files do not replace the ones that were read.
    outdated: Option<Fault>,
}

/// A hash of the names, sizes and times of a version's files.
type Stamp = u64;

impl Reads {
    /// A version as it was read. An unusable version is read again when its files have changed.
    pub(super) fn entry(&self, repository: &Repository, of: &Version) -> Result<Entry, Fault> {
        let (name, version) = of;
        let stamp = stamp(repository, of);
        if let Some(read) = lock(&self.0).get(of)
            && (read.entry.is_ok() || read.stamp == stamp)
        {
            return read.entry.clone();
        }
        let entry = repository.get(name, Some(*version)).map_err(|error| {
            tracing::warn!(name, version, %error, "a model cannot be used");
            unusable(&error)
        });
        let read = Read { stamp, coming: None, entry: entry.clone(), outdated: None };
        lock(&self.0).insert(of.clone(), read);
        entry
    }

    /// The versions that were read, usable or not.
    pub(super) fn all(&self) -> BTreeSet<Version> {
        lock(&self.0).keys().cloned().collect()
    }

    /// The usable versions of a model, oldest first.
    pub(super) fn versions(&self, name: &str) -> Vec<u64> {
        let all = lock(&self.0);
        let usable = all.iter().filter(|((of, _), read)| of == name && read.entry.is_ok());
        let mut versions: Vec<u64> = usable.map(|((_, version), _)| *version).collect();
        versions.sort_unstable();
        versions
    }

    /// The entry of a version, if usable.
    pub(super) fn usable(&self, of: &Version) -> Option<Entry> {
        lock(&self.0).get(of)?.entry.clone().ok()
    }

    /// Whether the files of a usable version differ from those that were read, and have not changed since the last
    /// look.
    pub(super) fn is_changed(&self, repository: &Repository, of: &Version) -> bool {
        let stamp = stamp(repository, of);
        let mut all = lock(&self.0);
        let Some(read) = all.get_mut(of).filter(|read| read.entry.is_ok()) else { return false };
        if read.stamp == stamp {
            read.coming = None;
            return false;
        }
        read.coming.replace(stamp) == Some(stamp)
    }

    /// Reads a version again if its files differ from those that were read, or could not replace them. Returns the
    /// entry if its content differs. The caller then calls `replace`, `outdate` or `refuse`.
    pub(super) fn anew(
        &self,
        repository: &Repository,
        of: &Version,
    ) -> Result<Option<Entry>, Fault> {
        let stamp = stamp(repository, of);
        let before = {
            let mut all = lock(&self.0);
            let Some(read) = all.get_mut(of) else { return Ok(None) };
            let Ok(before) = read.entry.clone() else { return Ok(None) };
            if read.stamp == stamp && read.outdated.is_none() {
                return Ok(None);
            }
            (read.stamp, read.coming, read.outdated) = (stamp, None, None);
            before
        };
        let now = repository.get(&of.0, Some(of.1)).map_err(|error| unusable(&error))?;
        Ok((now.sha256 != before.sha256).then_some(now))
    }

    /// Replaces a version's entry.
    pub(super) fn replace(&self, now: Entry) {
        if let Some(read) = lock(&self.0).get_mut(&(now.name.clone(), now.version)) {
            read.entry = Ok(now);
        }
    }

    /// Keeps a version's entry although its files have changed.
    pub(super) fn outdate(&self, of: &Version, fault: Fault) {
        if let Some(read) = lock(&self.0).get_mut(of) {
            read.outdated = Some(fault);
        }
    }

    /// Marks a version as unusable.
    pub(super) fn refuse(&self, of: &Version, fault: Fault) {
        if let Some(read) = lock(&self.0).get_mut(of) {
            read.entry = Err(fault);
        }
    }

    /// Why the changed files of a serving version have not replaced it.
    pub(super) fn outdated(&self, name: &str, version: u64) -> Option<Fault> {
        lock(&self.0).get(&(name.to_owned(), version))?.outdated.clone()
    }

    /// Drops versions.
    pub(super) fn retain(&self, stays: impl Fn(&Version) -> bool) {
        lock(&self.0).retain(|version, _| stays(version));
    }
}

/// Covers all of a version's files, because its weights may be written after its model.
fn stamp(repository: &Repository, (name, version): &Version) -> Stamp {
    let mut files = Vec::new();
    list(&repository.root().join(name).join(version.to_string()), DEPTH_MAX, &mut files);
    files.sort_unstable();
    let mut stamp = DefaultHasher::new();
    files.hash(&mut stamp);
    stamp.finish()
}

fn list(folder: &Path, depth: usize, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    for item in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = item.path();
        // Follows links.
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() && depth > 0 => list(&path, depth - 1, files),
            Ok(found) => files.push((path, found.len(), found.modified().ok())),
            Err(_) => {}
        }
    }
}
