//! Models of a worker that does not share its coordinator's files: fetched and stored by digest.
//! The oldest ones are evicted when the cache is full.

use crate::executor::ModelExecutor;
use lgp_distributed::{BlobFile, BlobPart, BlobSource, ExecError, ModelCache, ModelRef};
use lgp_inference::{Error as ModelError, Repository};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file with the graph; its name within the model's parts.
const MODEL_FILE: &str = "model.onnx";
/// The folder of incomplete fetches in the repository. No model has this name.
const PARTIAL: &str = ".partial";

/// The registered models of a [`Repository`], for workers that fetch them.
#[derive(Debug, Clone)]
pub struct RepositoryFiles(pub Repository);

impl BlobSource for RepositoryFiles {
    fn find(&self, sha256: &str) -> io::Result<Option<Vec<BlobFile>>> {
        let entries = self.0.list().map_err(io::Error::other)?;
        let Some(entry) = entries.into_iter().find(|entry| entry.sha256 == sha256) else {
            return Ok(None);
        };
        let weights = Repository::external_files(&entry.path).map_err(io::Error::other)?;
        let model = BlobFile { name: MODEL_FILE.to_owned(), path: entry.path };
        let mut files = vec![model];
        for (name, path) in weights {
            let parts: Option<Vec<&str>> = name.iter().map(|part| part.to_str()).collect();
            let parts = parts.ok_or_else(|| {
                io::Error::other(format!("the name of {} is not text", path.display()))
            })?;
            files.push(BlobFile { name: parts.join("/"), path });
        }
        Ok(Some(files))
    }
}

fn unavailable(what: &str, error: impl std::fmt::Display) -> ExecError {
    ExecError::unavailable(format!("the cache of models: cannot {what}: {error}"))
}

impl ModelCache for ModelExecutor {
    fn lacks(&self, model: &ModelRef) -> Option<PathBuf> {
        let repository = self.repository();
        let here = self.is_loaded(model) || repository.get(&model.sha256, None).is_ok();
        (!here).then(|| repository.root().join(PARTIAL).join(&model.sha256))
    }

    fn make_room(&self, model: &ModelRef, bytes: u64) -> Result<(), ExecError> {
        self.make_room_beside(model, bytes, |sha256| self.is_in_use(sha256))
    }

    fn keep(
        &self,
        model: &ModelRef,
        collected: &Path,
        parts: &[BlobPart],
    ) -> Result<(), ExecError> {
        let added = self.add(model, collected, parts);
        // Valid or not, the fetched file is not needed any more.
        std::fs::remove_file(collected)
            .or_else(ignore_missing)
            .map_err(|e| unavailable("remove a fetched file", e))?;
        added
    }
}

impl ModelExecutor {
    /// Evicts models until a file fits, but none that is in use.
    pub(crate) fn make_room_beside(
        &self,
        model: &ModelRef,
        bytes: u64,
        is_in_use: impl Fn(&str) -> bool,
    ) -> Result<(), ExecError> {
        let Some(bytes_max) = self.cache_bytes_max() else { return Ok(()) };
        let models = kept(self.repository().root()).map_err(|e| unavailable("list models", e))?;
        let sum =
            |models: &[Kept]| models.iter().map(|kept| kept.bytes).fold(0, u64::saturating_add);
        let mut used = sum(&models);
        let mut spare = models;
        spare.retain(|kept| kept.sha256 != model.sha256 && !is_in_use(&kept.sha256));
        let least = used.saturating_sub(sum(&spare));
        // Nothing is evicted for a file that would not fit anyway.
        if least.saturating_add(bytes) > bytes_max {
            return Err(ExecError::unavailable(format!(
                "model {model} needs {bytes} more bytes; of the {bytes_max} bytes that the cache may \
                 take, {least} are in use"
            )));
        }
        spare.sort_by_key(|kept| kept.since);
        for kept in spare {
            if used.saturating_add(bytes) <= bytes_max {
                break;
            }
            tracing::info!(sha256 = kept.sha256, bytes = kept.bytes, "giving up a cached model");
            self.give_up(&kept.sha256)?;
            used = used.saturating_sub(kept.bytes);
        }
        Ok(())
    }

    fn give_up(&self, sha256: &str) -> Result<(), ExecError> {
        std::fs::remove_file(self.repository().root().join(PARTIAL).join(sha256))
            .or_else(ignore_missing)
            .map_err(|e| unavailable("remove a model", e))?;
        match self.repository().remove(sha256, None) {
            Ok(()) | Err(ModelError::UnknownModel { .. }) => Ok(()),
            Err(error) => Err(unavailable("remove a model", error)),
        }
    }

    fn add(&self, model: &ModelRef, collected: &Path, parts: &[BlobPart]) -> Result<(), ExecError> {
        let repository = self.repository();
        let staging = tempfile::tempdir_in(repository.root().join(PARTIAL))
            .map_err(|e| unavailable("write", e))?;
        split(collected, parts, staging.path()).map_err(|e| unavailable("write", e))?;
        let entry = repository
            .add(&model.sha256, staging.path().join(MODEL_FILE))
            .map_err(|e| ExecError::failed(format!("model {model} as it was fetched: {e}")))?;
        if entry.sha256 == model.sha256 {
            return Ok(());
        }
        // The fetched files were hashed in another order, or only partly.
        repository.remove(&model.sha256, None).map_err(|e| unavailable("remove a model", e))?;
        let given = entry.sha256;
        let message =
            format!("model {model} has digest {given} as a model, expected {}", model.sha256);
        Err(ExecError::failed(message))
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Writes each part into its own file. The names are checked and stay in the folder.
fn split(collected: &Path, parts: &[BlobPart], folder: &Path) -> io::Result<()> {
    if let [only] = parts
        && only.name == MODEL_FILE
    {
        return std::fs::rename(collected, folder.join(MODEL_FILE));
    }
    let mut run = File::open(collected)?;
    for part in parts {
        let path = folder.join(&part.name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let copied = io::copy(&mut run.by_ref().take(part.bytes), &mut File::create_new(path)?)?;
        if copied != part.bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a part is missing"));
        }
    }
    Ok(())
}

/// A model in the cache, complete or not.
struct Kept {
    sha256: String,
    bytes: u64,
    since: SystemTime,
}

fn kept(root: &Path) -> io::Result<Vec<Kept>> {
    let mut models = Vec::new();
    for folder in [root.to_owned(), root.join(PARTIAL)] {
        let listing = match std::fs::read_dir(&folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for item in listing {
            let item = item?;
            let Ok(sha256) = item.file_name().into_string() else { continue };
            if sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                let since = item.metadata()?.modified()?;
                models.push(Kept { sha256, bytes: size(&item.path())?, since });
            }
        }
    }
    Ok(models)
}

/// Bytes of a file, or of all files in a folder.
fn size(path: &Path) -> io::Result<u64> {
    let metadata = std::fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0u64;
    for item in std::fs::read_dir(path)? {
        bytes = bytes.saturating_add(size(&item?.path())?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::tests::{input, repository};
    use lgp_distributed::{Executor, Stop};
    use lgp_inference::SessionOptions;

    fn fetching(root: &Path, bytes_max: u64) -> ModelExecutor {
        let repository = Repository::open(root).expect("ours");
        ModelExecutor::new(repository, None, SessionOptions::with_threads(1)).fetching(bytes_max)
    }

    /// Stands in for the network: copies a model's files into one sequence of bytes.
    fn transfer(source: &RepositoryFiles, model: &ModelRef, to: &Path) -> Vec<BlobPart> {
        let files = source.find(&model.sha256).expect("ours").expect("registered");
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("ours");
        let mut run = Vec::new();
        let mut parts = Vec::new();
        for file in files {
            let bytes = std::fs::read(&file.path).expect("ours");
            parts.push(BlobPart { name: file.name, bytes: bytes.len() as u64 });
            run.extend(bytes);
        }
        std::fs::write(to, run).expect("ours");
        parts
    }

    #[test]
    fn a_fetched_model_runs_and_stays() {
        let (folder, repository, model) = repository();
        let source = RepositoryFiles(repository);
        assert!(source.find(&"0".repeat(64)).expect("ours").is_none());
        let root = folder.path().join("cache");
        let executor = fetching(&root, 1 << 20);
        let path = executor.lacks(&model).expect("nothing is there yet");
        executor.make_room(&model, 1000).expect("there is room");
        let parts = transfer(&source, &model, &path);
        executor.keep(&model, &path, &parts).expect("a good model");
        assert!(executor.lacks(&model).is_none() && !path.exists());
        let outputs = executor
            .execute(0, &model, &input("x", &[-1., 2.]), &Stop::new())
            .expect("a good task");
        assert_eq!(outputs[0].tensor.as_slice::<f32>().expect("f32"), [0., 2.]);
        // Another executor on the same folder, as after a restart; another name, the same digest.
        let renamed = ModelRef { name: "other".into(), version: 7, ..model };
        let again = fetching(&root, 1 << 20);
        assert!(again.lacks(&renamed).is_none());
        again.load(0, &renamed).expect("it is here");
        assert_eq!(again.status().devices[0].models, [renamed]);
    }

    #[test]
    fn what_is_no_model_is_not_kept() {
        let (folder, _, model) = repository();
        let executor = fetching(&folder.path().join("cache"), 1 << 20);
        let path = executor.lacks(&model).expect("nothing is there yet");
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("ours");
        std::fs::write(&path, b"no model").expect("ours");
        let parts = [BlobPart { name: MODEL_FILE.into(), bytes: 8 }];
        executor.keep(&model, &path, &parts).expect_err("no model");
        assert!(executor.lacks(&model).is_some() && !path.exists());
    }

    #[test]
    fn the_cache_gives_up_what_is_not_in_use() {
        let (folder, repository, model) = repository();
        let source = RepositoryFiles(repository);
        let executor = fetching(&folder.path().join("cache"), 10_000);
        let path = executor.lacks(&model).expect("nothing is there yet");
        let parts = transfer(&source, &model, &path);
        executor.keep(&model, &path, &parts).expect("a good model");
        let other = ModelRef { sha256: "0".repeat(64), ..model.clone() };
        executor.make_room(&other, 10_001).expect_err("more than there can be");
        assert!(executor.lacks(&model).is_none(), "nothing is given up in vain");
        executor.load(0, &model).expect("a good model");
        executor.make_room(&other, 9_999).expect_err("the one in use stays");
        executor.unload(0, &model);
        executor.make_room(&other, 9_999).expect("room");
        assert!(executor.lacks(&model).is_some());
    }
}
