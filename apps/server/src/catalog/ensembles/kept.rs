//! The known ensembles, and reading their files.

use super::super::{ModelEntry, Turns, lock};
use crate::ensemble::{FILE, FILE_BYTES_MAX};
use crate::fault::Fault;
use lgp_sdk::model::Repository;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The known ensembles.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Ensembles {
    /// Usable ensembles, as their files last were when usable.
    pub(super) serving: Mutex<BTreeMap<String, ModelEntry>>,
    /// The errors of unusable files.
    pub(super) faults: Mutex<BTreeMap<String, Fault>>,
    /// Held while a file is checked, so that an older result never replaces a newer one.
    pub(super) looking: Turns,
}

impl Ensembles {
    /// The ensemble of this name, if usable.
    pub(in crate::catalog) fn serving(&self, name: &str) -> Option<ModelEntry> {
        lock(&self.serving).get(name).cloned()
    }

    /// The error of its file.
    pub(in crate::catalog) fn fault(&self, name: &str) -> Option<Fault> {
        lock(&self.faults).get(name).cloned()
    }

    pub(super) fn forget(&self, name: &str) {
        lock(&self.faults).remove(name);
        if lock(&self.serving).remove(name).is_some() {
            tracing::info!(name, "the file of an ensemble is gone");
        }
    }

    /// Stores an ensemble whose file was read. An unchanged one keeps its entry and cached data.
    pub(super) fn take(&self, name: &str, entry: ModelEntry) -> ModelEntry {
        lock(&self.faults).remove(name);
        let mut serving = lock(&self.serving);
        match serving.get(name) {
            Some(before) if is_same(before, &entry) => before.clone(),
            _ => {
                tracing::info!(name, "an ensemble has come, or has changed");
                serving.insert(name.to_owned(), entry.clone());
                entry
            }
        }
    }

    /// Records why a file cannot be used. The ensemble keeps serving in its form before the change.
    pub(super) fn refuse(
        &self,
        name: &str,
        sha256: &str,
        fault: Fault,
    ) -> Result<ModelEntry, Fault> {
        let told = lock(&self.faults).insert(name.to_owned(), fault.clone());
        if told.as_ref() != Some(&fault) {
            tracing::warn!(name, reason = fault.message, "an ensemble cannot be used");
        }
        let mut serving = lock(&self.serving);
        match serving.get(name) {
            Some(before) if before.model().sha256 != sha256 => Ok(before.clone()),
            _ => {
                serving.remove(name);
                Err(fault)
            }
        }
    }
}

fn is_same(one: &ModelEntry, other: &ModelEntry) -> bool {
    one.model() == other.model() && one.has_models_of(other)
}

/// A file that was read; its text may be too long or not UTF-8.
pub(super) struct Text {
    pub(super) folder: PathBuf,
    pub(super) text: Result<String, String>,
    pub(super) sha256: String,
    /// Whether the folder also has versions of a model.
    pub(super) has_versions: bool,
}

impl Text {
    /// The file of this name, if it exists.
    pub(super) fn read(repository: &Repository, name: &str) -> std::io::Result<Option<Self>> {
        let folder = repository.root().join(name);
        let path = folder.join(FILE);
        // Opening a pipe would block until it has a writer.
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let sha256 = hex::encode(Sha256::digest(&bytes));
        let has_versions = repository.versions_of(name).is_ok();
        let text = match u64::try_from(bytes.len()) {
            Ok(0..=FILE_BYTES_MAX) => {
                String::from_utf8(bytes).map_err(|error| format!("{FILE} is not UTF-8: {error}"))
            }
            _ => Err(format!("{FILE} has more than {FILE_BYTES_MAX} bytes")),
        };
        Ok(Some(Self { folder, text, sha256, has_versions }))
    }
}

/// Folders with an ensemble file.
pub(super) fn names(root: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for item in std::fs::read_dir(root)? {
        let Ok(name) = item?.file_name().into_string() else { continue };
        if Repository::is_name(&name) && root.join(&name).join(FILE).is_file() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
