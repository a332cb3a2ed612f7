//! What a model's own file says of it: `config.pbtxt` as Triton's repositories have it, or
//! `config.toml`.

use super::ports::Ports;
use super::{DeployError, Deployment, triton};
use crate::codes::plainly;
use lgp_inference::{Entry, Error as ModelError, Repository, ValueSpec};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Triton's file.
const PBTXT: &str = "config.pbtxt";
/// Our own.
const TOML: &str = "config.toml";
/// Largest file that is read.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// What a file in a model's folder says of the model.
///
/// ```
/// use lgp_sdk::{ModelConfig, Repository};
///
/// let folder = tempfile::tempdir()?;
/// let repository = Repository::open(folder.path())?;
/// // There is no file.
/// assert_eq!(ModelConfig::of(&repository, "resnet50")?, ModelConfig::default());
/// let of_model = folder.path().join("resnet50");
/// std::fs::create_dir(&of_model)?;
/// std::fs::write(of_model.join("config.pbtxt"), "max_batch_size: 8 dynamic_batching {}")?;
/// let config = ModelConfig::of(&repository, "resnet50")?;
/// assert_eq!(config.deployment.batching.expect("it says so").max.get(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ModelConfig {
    /// What it asks of the cluster, where an administrator says nothing else.
    pub deployment: Deployment,
    /// The file with the names of its classes, beside its versions or in their folders; `labels.txt` where
    /// nothing is said.
    pub label_file: Option<String>,
    /// Rows of one inference, at most, as Triton's clients are told; 0 where batches are part of the shapes.
    pub max_batch_size: u32,
    /// What it says and nothing is made of.
    pub ignored: Vec<String>,
    /// Which of the two files it is.
    pub(super) file: &'static str,
    /// What it says of inputs and outputs.
    pub(super) ports: Ports,
}

impl ModelConfig {
    /// What the file may be called.
    pub const FILES: [&'static str; 2] = [PBTXT, TOML];

    /// Reads the file of a model; the default where there is none. Nothing is compared with the model yet.
    ///
    /// # Errors
    /// [`DeployError::Config`] for a file that is not understood, that is larger than 64 KiB or asks for what
    /// would change answers and is not done here, and where both files are there; [`ModelError::Io`] for one
    /// that cannot be read now.
    pub fn of(repository: &Repository, name: &str) -> Result<Self, DeployError> {
        if !Repository::is_name(name) {
            return Ok(Self::default());
        }
        let folder = repository.root().join(name);
        let failed = |file| move |reason| refused(name, file, reason);
        let read = |file| match text(&folder.join(file)) {
            Ok(text) => text.map_err(failed(file)),
            Err(source) => {
                Err(ModelError::Io { action: "read", path: folder.join(file), source }.into())
            }
        };
        let (pbtxt, toml) = (read(PBTXT)?, read(TOML)?);
        match (pbtxt, toml) {
            (None, None) => Ok(Self::default()),
            (Some(text), None) => triton::read(name, &text)
                .map(|config| Self { file: PBTXT, ..config })
                .map_err(failed(PBTXT)),
            (None, Some(text)) => own(&text).map_err(failed(TOML)),
            (Some(_), Some(_)) => {
                let what = format!("{TOML} lies beside it, expected one of them: keep one");
                Err(refused(name, PBTXT, what))
            }
        }
    }

    /// Whether a version of the model is as the file says, and can do what it asks for.
    ///
    /// # Errors
    /// [`DeployError::Config`]; the repository's answer.
    pub fn check(&self, repository: &Repository, entry: &Entry) -> Result<(), DeployError> {
        if self.file.is_empty() {
            return Ok(());
        }
        let failed = |reason| refused(&entry.name, self.file, reason);
        self.ports.check(&entry.inputs, &entry.outputs).map_err(failed)?;
        if let Some(policy) = &self.deployment.version_policy {
            let all = repository.versions_of(&entry.name)?;
            if policy.choose(&all).is_empty() {
                let what = format!("the version policy {policy} chooses none of {all:?}");
                return Err(failed(what));
            }
        }
        // A variant may come later, or go: then others answer.
        let mut deployment = self.deployment.clone();
        deployment.variants.retain(|name| repository.versions_of(name).is_ok());
        deployment.check_for(repository, entry).map_err(|error| failed(error.to_string()))
    }

    /// Makes inputs of the model what requests may bring: lengths that the model leaves open and the file
    /// says are those of the file. For a version that [`ModelConfig::check`] has found to fit.
    pub fn narrow(&self, inputs: &mut [ValueSpec]) {
        self.ports.narrow(inputs);
    }
}

fn refused(model: &str, file: &'static str, reason: String) -> DeployError {
    DeployError::Config { model: model.to_owned(), file, reason }
}

/// Our own file: the deployment's fields.
fn own(text: &str) -> Result<ModelConfig, String> {
    let deployment = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| place(text, span.start)).unwrap_or_default();
        format!("{at}{}", plainly(&error.message().replace('\n', ", ")))
    })?;
    Ok(ModelConfig { deployment, file: TOML, ..ModelConfig::default() })
}

/// Where a byte of a text is, for messages.
pub(super) fn place(text: &str, offset: usize) -> String {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    format!("line {}: ", before.iter().filter(|byte| **byte == b'\n').count() + 1)
}

/// The text of a file, none where there is none; or why it is none that is read.
fn text(path: &Path) -> io::Result<Result<Option<String>, String>> {
    let too_large = |bytes| Ok(Err(format!("it has {bytes} bytes, expected {BYTES_MAX} at most")));
    // A pipe would wait for its writer.
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => return Ok(Err("it is no file".to_owned())),
        Ok(found) if found.len() > BYTES_MAX => return too_large(found.len()),
        Ok(_) => {}
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        file => file?,
    };
    let mut text = String::new();
    // It may have grown.
    match file.take(BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(Err(error.to_string())),
        Err(error) => return Err(error),
    }
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if bytes > BYTES_MAX { too_large(bytes) } else { Ok(Ok(Some(text))) }
}

#[cfg(test)]
mod tests;
