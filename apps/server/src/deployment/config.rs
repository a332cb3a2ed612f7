//! The config file of a model: `config.pbtxt` as in Triton's repositories, or `config.toml`.

use super::ports::Ports;
use super::{DeployError, Deployment, triton};
use lgp_common::plainly;
use lgp_inference::{Entry, Error as ModelError, Repository, ValueSpec};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Triton's format.
const PBTXT: &str = "config.pbtxt";
/// The project's own format.
const TOML: &str = "config.toml";
/// The largest file that is read, in bytes.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// The contents of a model's config file.
///
/// ```
/// use lgp_inference::Repository;
/// use lgp_server::ModelConfig;
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
    /// The model's deployment, where an administrator sets nothing else.
    pub deployment: Deployment,
    /// The file with the names of the model's classes, beside its versions or in their folders; when unset,
    /// `labels.txt`.
    pub label_file: Option<String>,
    /// The most rows of one inference, as Triton's clients see it; 0 if the shapes include the batch.
    pub max_batch_size: u32,
    /// Settings in the file that have no effect.
    pub ignored: Vec<String>,
    /// The file's name; empty if there is none.
    pub(super) file: &'static str,
    /// The inputs and outputs that the file declares.
    pub(super) ports: Ports,
}

impl ModelConfig {
    /// The names that the file may have.
    pub const FILES: [&'static str; 2] = [PBTXT, TOML];

    /// Reads the config file of a model; the default if there is none. Does not compare it with the model.
    ///
    /// # Errors
    /// [`DeployError::Config`] for a file that cannot be parsed, is larger than 64 KiB or asks for an unsupported
    /// feature that would change answers, and if both files exist; [`ModelError::Io`] for a file that cannot be read
    /// now.
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

    /// Checks that a version of the model agrees with the file and can do what the file asks for.
    ///
    /// # Errors
    /// [`DeployError::Config`], and errors of the repository.
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
        // Variants may be added later or removed, so missing ones are skipped.
        let mut deployment = self.deployment.clone();
        deployment.variants.retain(|name| repository.versions_of(name).is_ok());
        deployment.check_for(repository, entry).map_err(|error| failed(error.to_string()))
    }

    /// Narrows the model's inputs: a length that the model leaves open and the file sets is that of the file. For
    /// versions that passed [`ModelConfig::check`].
    pub fn narrow(&self, inputs: &mut [ValueSpec]) {
        self.ports.narrow(inputs);
    }
}

fn refused(model: &str, file: &'static str, reason: String) -> DeployError {
    DeployError::Config { model: model.to_owned(), file, reason }
}

/// Parses `config.toml`, which has the fields of [`Deployment`].
fn own(text: &str) -> Result<ModelConfig, String> {
    let deployment = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| place(text, span.start)).unwrap_or_default();
        format!("{at}{}", plainly(&error.message().replace('\n', ", ")))
    })?;
    Ok(ModelConfig { deployment, file: TOML, ..ModelConfig::default() })
}

/// The line of a byte in a text, as a prefix of messages.
pub(super) fn place(text: &str, offset: usize) -> String {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    format!("line {}: ", before.iter().filter(|byte| **byte == b'\n').count() + 1)
}

/// The text of a file, `None` if it does not exist, or the reason why it is not read.
fn text(path: &Path) -> io::Result<Result<Option<String>, String>> {
    let too_large = |bytes| Ok(Err(format!("it has {bytes} bytes, expected {BYTES_MAX} at most")));
    // Opening a pipe would block until it has a writer.
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
    // The file may have grown since its length was checked.
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
