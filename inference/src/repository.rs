//! A folder of models by name and version: `NAME/VERSION/model.onnx`, with the files that hold
//! its weights beside it.
//!
//! A version that is added appears whole or not at all. A version whose files are overwritten is
//! another model under the same number, with another digest. A number is given again only when its
//! version, and all later ones, were removed.

mod entry;
mod files;

pub use entry::Entry;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::options::SessionOptions;
use crate::session::Session;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The model's file in its version's folder.
const MODEL_FILE: &str = "model.onnx";

/// Prefixes of the folders in which versions are put together and taken apart.
const STAGING: [&str; 2] = [".adding-", ".removing-"];

/// Longest name of a model.
const NAME_MAX: usize = 64;

/// A model repository. Several processes may use one folder at the same time.
///
/// ```
/// use lgp_inference::{GraphBuilder, Repository};
/// # use lgp_memory::{DType, Dim, SymShape, TensorType};
/// # let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Known(2)])) };
/// # let mut g = GraphBuilder::new("relu");
/// # let x = g.input("x", ty.clone());
/// # let y = g.node("Relu", &[x], []);
/// # g.output("y", y, ty);
/// # let bytes = g.finish()?.to_onnx()?;
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let repository = Repository::open(folder)?;
/// let entry = repository.add_bytes("relu", &bytes)?;
/// assert_eq!((entry.name.as_str(), entry.version), ("relu", 1));
/// assert_eq!(repository.get("relu", None)?.sha256, entry.sha256);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Opens the repository in a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root).map_err(Error::io("create", &root))?;
        Ok(Self { root })
    }

    /// Removes the leftovers of interrupted additions and removals. Only for the repository's
    /// owner, while no other process changes the repository.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sweep(&self) -> Result<()> {
        for name in folders(&self.root)? {
            if STAGING.iter().any(|prefix| name.starts_with(prefix)) {
                let path = self.root.join(name);
                std::fs::remove_dir_all(&path).map_err(Error::io("remove", path))?;
            }
        }
        Ok(())
    }

    /// Whether a model may have this name: an ASCII letter or digit, then letters, digits, `.`, `_`
    /// and `-`, 64 characters at most. Such a name is no path.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        name.len() <= NAME_MAX
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    }

    /// The repository's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Copies a model, with the files that hold its weights, into the next version of `name`.
    ///
    /// # Errors
    /// [`Error::ModelName`], the errors of [`Model::load`] and [`Session::new`], or [`Error::Io`].
    /// Nothing is added then.
    pub fn add(&self, name: &str, file: impl AsRef<Path>) -> Result<Entry> {
        let file = file.as_ref();
        let bytes = crate::onnx::read_file(file)?;
        self.store(name, &bytes, Some(crate::onnx::folder_of(file)))
    }

    /// As [`Repository::add`], for a model in memory that needs no other files.
    ///
    /// # Errors
    /// As [`Repository::add`].
    pub fn add_bytes(&self, name: &str, bytes: &[u8]) -> Result<Entry> {
        self.store(name, bytes, None)
    }

    /// The newest version of `name` with exactly these bytes, which is added if there is none.
    ///
    /// # Errors
    /// As [`Repository::add`].
    pub fn find_or_add_bytes(&self, name: &str, bytes: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let sha256 = files::digest(bytes, &BTreeMap::new())?;
        let entries = self.versions(name)?.into_iter().rev().filter_map(|v| self.readable(name, v));
        match entries.into_iter().find(|entry| entry.sha256 == sha256) {
            Some(entry) => Ok(entry),
            None => self.add_bytes(name, bytes),
        }
    }

    /// The files that [`Repository::add`] copies along with a model: the model's name of each, and
    /// its path.
    ///
    /// # Errors
    /// Those of [`Model::load`] about the file or the places of its weights.
    pub fn external_files(file: impl AsRef<Path>) -> Result<BTreeMap<PathBuf, PathBuf>> {
        let file = file.as_ref();
        let bytes = crate::onnx::read_file(file)?;
        crate::onnx::external_files(&bytes, Some(crate::onnx::folder_of(file)))
            .map_err(|error| crate::onnx::of_file(error, file))
    }

    /// Reads a stored model, and checks that its files still have the entry's digest. Weights in
    /// other files are hashed once the model is read: a file that is changed and changed back in
    /// between goes unnoticed.
    ///
    /// # Errors
    /// [`Error::Digest`] when a file has changed, and as [`Model::load`].
    pub fn load(&self, entry: &Entry) -> Result<Model> {
        let bytes = std::fs::read(&entry.path).map_err(Error::io("read", &entry.path))?;
        let folder = crate::onnx::folder_of(&entry.path);
        let read = || {
            let model = Model::from_bytes(&bytes, Some(folder))?;
            Ok((model, crate::onnx::external_files(&bytes, Some(folder))?))
        };
        let (model, external) = match read() {
            Ok((model, external)) => (Ok(model), external),
            // The model was readable when it was stored: another file may lie there now.
            Err(error) => (Err(error), BTreeMap::new()),
        };
        let given = files::digest(&bytes, &external)?;
        if given != entry.sha256 {
            if let Err(error) = model {
                tracing::warn!(path = %entry.path.display(), %error, "the file there is not a model");
            }
            let (path, expected) = (entry.path.clone(), entry.sha256.clone());
            return Err(Error::Digest { path, given, expected });
        }
        model
    }

    fn store(&self, name: &str, bytes: &[u8], base: Option<&Path>) -> Result<Entry> {
        check_name(name)?;
        let model = Model::from_bytes(bytes, base)?;
        // Compiled once, so that a model that cannot run is refused now, not at its first request.
        let metadata = entry::metadata_of(&model);
        let session = Session::new(model, SessionOptions::with_threads(1))?;
        let external = crate::onnx::external_files(bytes, base)?;

        let staging = tempfile::Builder::new()
            .prefix(STAGING[0])
            .tempdir_in(&self.root)
            .map_err(Error::io("write", &self.root))?;
        let sha256 = files::copy(staging.path(), bytes, &external)?;
        let (inputs, outputs) = (session.inputs().to_vec(), session.outputs().to_vec());
        let mut entry = Entry {
            name: name.to_owned(),
            version: 0,
            path: PathBuf::new(),
            sha256,
            inputs,
            outputs,
            metadata,
        };
        let files = entry::seen(staging.path(), external.keys())?;
        entry::save(staging.path(), &entry, files)?;

        let folder = self.root.join(name);
        std::fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        loop {
            // A folder without a model has its number too.
            entry.version = numbers(&folder)?.last().map_or(1, |v| v + 1);
            let target = folder.join(entry.version.to_string());
            match std::fs::rename(staging.path(), &target) {
                Ok(()) => {
                    entry.path = target.join(MODEL_FILE);
                    // The folder has moved: there is nothing left to clean up.
                    let _ = staging.keep();
                    files::sync(&folder);
                    return Ok(entry);
                }
                // Another process added this version in between: take the next number.
                Err(e) if is_taken(&e) => {}
                Err(e) => return Err(Error::io("write", target)(e)),
            }
        }
    }

    /// Every version of every model, by name and version. A model that was put there by hand and
    /// does not run is left out, with a warning in the log; [`Repository::get`] says why. A model
    /// whose folder cannot be read is left out too.
    ///
    /// # Errors
    /// [`Error::Io`] where the repository's own folder cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (name, versions) in self.found()? {
            match versions {
                Ok(versions) => {
                    let versions = versions.into_iter();
                    entries.extend(versions.filter_map(|version| self.readable(&name, version)));
                }
                Err(error) => tracing::warn!(name, %error, "a model is left out"),
            }
        }
        Ok(entries)
    }

    /// The versions of each model, by the names of folders, or why the model's folder cannot be
    /// read. The models are not read: they may be unusable. Folders without a version are left out.
    ///
    /// # Errors
    /// [`Error::Io`] where the repository's own folder cannot be read.
    pub fn found(&self) -> Result<BTreeMap<String, Result<Vec<u64>>>> {
        let mut names = folders(&self.root)?;
        names.retain(|name| check_name(name).is_ok());
        let found = names.into_iter().map(|name| (self.versions(&name), name));
        let is_model = |versions: &Result<Vec<u64>>| !matches!(versions, Ok(all) if all.is_empty());
        Ok(found.filter(|(found, _)| is_model(found)).map(|(found, name)| (name, found)).collect())
    }

    /// The entry of a version. A bad model is only logged: it must not hide the others.
    fn readable(&self, name: &str, version: u64) -> Option<Entry> {
        entry::load(&self.root, name, version)
            .inspect_err(|error| tracing::warn!(name, version, %error, "a model is left out"))
            .ok()
    }

    /// A version of a model; the newest when none is named.
    ///
    /// # Errors
    /// [`Error::UnknownModel`], [`Error::UnknownVersion`], [`Error::Io`], or the error of a model
    /// that was put there by hand.
    pub fn get(&self, name: &str, version: Option<u64>) -> Result<Entry> {
        let versions = self.versions_of(name)?;
        let version = match version {
            None => versions.last().copied().unwrap_or(0),
            Some(version) => version,
        };
        if !versions.contains(&version) {
            return Err(unknown_version(name, version, &versions));
        }
        entry::load(&self.root, name, version)
    }

    /// Removes a version of a model, or all of them when none is named.
    ///
    /// # Errors
    /// [`Error::UnknownModel`], [`Error::UnknownVersion`] or [`Error::Io`].
    pub fn remove(&self, name: &str, version: Option<u64>) -> Result<()> {
        let versions = self.versions_of(name)?;
        let folder = self.root.join(name);
        let target = match version {
            None => folder.clone(),
            Some(v) if versions.contains(&v) => folder.join(v.to_string()),
            Some(v) => return Err(unknown_version(name, v, &versions)),
        };
        // Moved aside first, so that no reader sees half a model.
        let trash = tempfile::Builder::new()
            .prefix(STAGING[1])
            .tempdir_in(&self.root)
            .map_err(Error::io("write", &self.root))?;
        std::fs::rename(&target, trash.path().join("model"))
            .map_err(Error::io("remove", target))?;
        if version.is_some() && versions.len() == 1 {
            // The folder stays where another version was added meanwhile: it is not empty.
            let _ = std::fs::remove_dir(&folder);
        }
        trash.close().map_err(Error::io("remove", folder))
    }

    /// The versions of a model, oldest first, by the names of folders.
    ///
    /// # Errors
    /// [`Error::ModelName`], [`Error::UnknownModel`] where there are none, [`Error::Io`].
    pub fn versions_of(&self, name: &str) -> Result<Vec<u64>> {
        check_name(name)?;
        let versions = self.versions(name)?;
        if versions.is_empty() {
            return Err(Error::UnknownModel { name: name.to_owned(), known: self.names()? });
        }
        Ok(versions)
    }

    /// The names that have a version, sorted.
    fn names(&self) -> Result<Vec<String>> {
        let found = self.found()?.into_iter();
        Ok(found.filter(|(_, versions)| versions.is_ok()).map(|(name, _)| name).collect())
    }

    /// The versions of a model, oldest first.
    fn versions(&self, name: &str) -> Result<Vec<u64>> {
        let folder = self.root.join(name);
        let mut versions = numbers(&folder)?;
        versions.retain(|version| is_there(&folder.join(version.to_string()).join(MODEL_FILE)));
        Ok(versions)
    }
}

/// The numbers among the names of the folders in a folder, lowest first.
fn numbers(folder: &Path) -> Result<Vec<u64>> {
    let names = folders(folder)?.into_iter();
    // `parse` alone would also read `+1` and `01`. Versions are counted from 1.
    let number = |name: String| name.parse().ok().filter(|n: &u64| *n > 0 && n.to_string() == name);
    let mut numbers: Vec<u64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether a path exists. A link that leads nowhere and a path without permission count: the read
/// of the model then reports them.
fn is_there(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Names of the folders in a folder, sorted; none where there is no folder.
fn folders(path: &Path) -> Result<Vec<String>> {
    let listing = match std::fs::read_dir(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listing => listing.map_err(Error::io("list", path))?,
    };
    let mut names = Vec::new();
    for item in listing {
        let item = item.map_err(Error::io("list", path))?;
        let is_folder = match std::fs::metadata(item.path()) {
            Ok(found) => found.is_dir(),
            // Without permission for the item, the listing itself may tell its kind.
            Err(_) => item.file_type().is_ok_and(|kind| kind.is_dir()),
        };
        if let (true, Ok(name)) = (is_folder, item.file_name().into_string()) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn unknown_version(name: &str, version: u64, versions: &[u64]) -> Error {
    let known = versions.iter().map(ToString::to_string).collect();
    Error::UnknownVersion { name: name.to_owned(), version, known }
}

fn is_taken(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty)
}

fn check_name(name: &str) -> Result<()> {
    if Repository::is_name(name) {
        Ok(())
    } else {
        Err(Error::ModelName { given: name.to_owned() })
    }
}
