//! What was read of each version's files, and whether they are others by now.

use super::lock;
use super::survey::{Version, unusable};
use crate::fault::Fault;
use lgp_sdk::{Entry, Repository};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

/// Folders within a version's folder, one in another, that are looked at.
const DEPTH_MAX: usize = 8;

/// The versions that were read. One that can be used is that until what its files have become takes its
/// place: a file that is overwritten may be half of one.
#[derive(Debug, Default)]
pub(super) struct Reads(Mutex<HashMap<Version, Read>>);

#[derive(Debug)]
struct Read {
    /// Of the files that were looked into last.
    stamp: Stamp,
    /// Of the files at the look before, where they were others: somebody may be writing them.
    coming: Option<Stamp>,
    entry: Result<Entry, Fault>,
    /// Why the files as they are do not take the place of those that were read.
    outdated: Option<Fault>,
}

/// Stands for the names, sizes and times of a version's files.
type Stamp = u64;

impl Reads {
    /// A version as it was read; one that could not be used is read again when its files have changed.
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

    /// The versions that were read, whether they can be used or not.
    pub(super) fn all(&self) -> BTreeSet<Version> {
        lock(&self.0).keys().cloned().collect()
    }

    /// The versions of a model that can be used, oldest first.
    pub(super) fn versions(&self, name: &str) -> Vec<u64> {
        let all = lock(&self.0);
        let usable = all.iter().filter(|((of, _), read)| of == name && read.entry.is_ok());
        let mut versions: Vec<u64> = usable.map(|((_, version), _)| *version).collect();
        versions.sort_unstable();
        versions
    }

    /// What a version was read as, if it can be used.
    pub(super) fn usable(&self, of: &Version) -> Option<Entry> {
        lock(&self.0).get(of)?.entry.clone().ok()
    }

    /// Whether the files of a version that can be used are others than those that were looked into, and were
    /// the same at the look before.
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

    /// Reads a version again whose files are others than those that were looked into, or could not take their
    /// place; answers what is something else then. Its caller says what becomes of it, or of the refusal.
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

    /// A version is this from now on.
    pub(super) fn replace(&self, now: Entry) {
        if let Some(read) = lock(&self.0).get_mut(&(now.name.clone(), now.version)) {
            read.entry = Ok(now);
        }
    }

    /// A version stays what it is, though its files are others.
    pub(super) fn outdate(&self, of: &Version, fault: Fault) {
        if let Some(read) = lock(&self.0).get_mut(of) {
            read.outdated = Some(fault);
        }
    }

    /// A version cannot be used as its files are.
    pub(super) fn refuse(&self, of: &Version, fault: Fault) {
        if let Some(read) = lock(&self.0).get_mut(of) {
            read.entry = Err(fault);
        }
    }

    /// Why the files of a version that serves have not taken its place.
    pub(super) fn outdated(&self, name: &str, version: u64) -> Option<Fault> {
        lock(&self.0).get(&(name.to_owned(), version))?.outdated.clone()
    }

    /// Forgets versions.
    pub(super) fn retain(&self, stays: impl Fn(&Version) -> bool) {
        lock(&self.0).retain(|version, _| stays(version));
    }
}

/// All of a version's files count: its weights may come after its model.
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
        // Of a link, the file that it leads to.
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() && depth > 0 => list(&path, depth - 1, files),
            Ok(found) => files.push((path, found.len(), found.modified().ok())),
            Err(_) => {}
        }
    }
}
