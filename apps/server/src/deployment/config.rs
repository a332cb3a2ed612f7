//! The config file of a model: `config.pbtxt` as in Triton's repositories, or `config.toml`.

mod read;

use super::ports::Ports;
use super::{DeployError, Deployment};
use lgp_inference::{Entry, Repository, ValueSpec};

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

/// The line of a byte in a text, as a prefix of messages.
pub(super) fn place(text: &str, offset: usize) -> String {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    format!("line {}: ", before.iter().filter(|byte| **byte == b'\n').count() + 1)
}

#[cfg(test)]
mod tests;
