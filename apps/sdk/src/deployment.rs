//! What a registered model asks of the cluster, kept beside its versions.

mod batching;
mod config;
mod patch;
mod ports;
mod sequences;
pub(crate) mod triton;
mod warm_up;

pub use config::ModelConfig;
pub use patch::DeploymentPatch;
pub use sequences::{ControlKind, SequenceControl, SequenceState, Sequences};
pub use warm_up::WarmUp;

use crate::versions::VersionPolicy;
use lgp_distributed::{Batching, ModelNeeds, ModelRef};
use lgp_inference::{Entry, Error as ModelError, Repository, ValueSpec};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The file in the model's folder.
const FILE: &str = "deployment.json";
/// Variants of one model.
const VARIANTS_MAX: usize = 16;

/// Why a model is not deployed as it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeployError {
    /// The repository's answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model that cannot answer in place of another.
    #[error("model '{variant}' cannot stand in for '{model}': {reason}")]
    Variant {
        /// The model.
        model: String,
        /// What was to stand in for it.
        variant: String,
        /// Why it cannot.
        reason: String,
    },
    /// A model's own file that is not understood, or that contradicts the model.
    #[error("{file} of model '{model}': {reason}")]
    Config {
        /// The model.
        model: String,
        /// The file in its folder.
        file: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A model that cannot do with sequences what it is to do.
    #[error("model '{model}' cannot keep such sequences: {reason}")]
    Sequences {
        /// The model.
        model: String,
        /// Why it cannot.
        reason: String,
    },
    /// Batches that no worker makes.
    #[error("batching of '{model}': {reason}")]
    Batching {
        /// The model.
        model: String,
        /// What was wrong, and what is expected.
        reason: String,
    },
    /// Inputs of a warm-up run that the model does not take.
    #[error("warm-up run {run} of '{model}': {reason}")]
    WarmUp {
        /// The model.
        model: String,
        /// The run, from 1.
        run: usize,
        /// What was wrong, and what is expected.
        reason: String,
    },
}

/// Where a model is to run, and what may answer in its place.
///
/// ```
/// use lgp_sdk::{Deployment, Repository};
///
/// let folder = tempfile::tempdir()?;
/// let repository = Repository::open(folder.path())?;
/// // Nothing was said of it.
/// assert_eq!(Deployment::of(&repository, "resnet50")?, Deployment::default());
/// let wish = Deployment { variants: vec!["resnet50-int8".to_owned()], ..Deployment::default() };
/// // There is no such model.
/// assert!(wish.check(&repository, "resnet50").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deployment {
    /// Device memory that it takes; measured where nothing is said.
    pub memory_bytes: Option<u64>,
    /// The backend that it runs best on, such as `opencl`.
    pub backend: Option<String>,
    /// The family of chips that it runs best on, such as `Polaris`.
    pub family: Option<String>,
    /// Models that may answer in its place: those with the same inputs and outputs.
    pub variants: Vec<String>,
    /// How long one run may take, in milliseconds, for tasks that say nothing of it.
    pub run_limit_ms: Option<NonZeroU64>,
    /// The versions that are to be loaded; those that were loaded last, and each that is added, where
    /// nothing is said.
    pub version_policy: Option<VersionPolicy>,
    /// Bytes of answers that the server keeps to give them again to inferences with the same inputs; none
    /// where nothing is said. Only for models whose outputs depend on their inputs alone.
    pub cache_bytes: Option<NonZeroU64>,
    /// How long an answer is kept, in milliseconds; until others need its room where nothing is said.
    pub cache_ttl_ms: Option<NonZeroU64>,
    /// How inferences run together; as the worker's settings say where nothing is said.
    pub batching: Option<Batching>,
    /// What it does with sequences; it knows none where nothing is said.
    pub sequences: Option<Sequences>,
    /// Runs that each device makes before the model is ready there.
    pub warm_up: Vec<WarmUp>,
}

impl Deployment {
    /// What holds for a model: what an administrator said and [`Deployment::save`] kept; where that leaves
    /// a field open, what the model's own file says (see [`ModelConfig`]); else the default.
    ///
    /// # Errors
    /// [`ModelError::Io`] for a file that cannot be read or understood, and as [`ModelConfig::of`].
    pub fn of(repository: &Repository, name: &str) -> Result<Self, DeployError> {
        let file = ModelConfig::of(repository, name)?;
        Ok(Self::beside(&file, repository, name)?)
    }

    /// The same, of a model whose own file is known to say this.
    ///
    /// # Errors
    /// As [`Deployment::said`].
    pub fn beside(
        file: &ModelConfig,
        repository: &Repository,
        name: &str,
    ) -> Result<Self, ModelError> {
        Ok(Self::said(repository, name)?.over(file.deployment.clone()))
    }

    /// What an administrator said and [`Deployment::save`] kept, whatever the model's own file says; the
    /// default where that was nothing.
    ///
    /// # Errors
    /// [`ModelError::Io`] for a file that cannot be read or understood.
    pub fn said(repository: &Repository, name: &str) -> Result<Self, ModelError> {
        // A name that is a path is no model's.
        if !matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]) {
            return Ok(Self::default());
        }
        let path = path(repository, name);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| ModelError::Io {
                action: "read",
                path,
                source: e.into(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ModelError::Io { action: "read", path, source }),
        }
    }

    /// What is said here, and in each field that is left open what `file` says.
    #[must_use]
    fn over(self, file: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.or(file.memory_bytes),
            backend: self.backend.or(file.backend),
            family: self.family.or(file.family),
            variants: if self.variants.is_empty() { file.variants } else { self.variants },
            run_limit_ms: self.run_limit_ms.or(file.run_limit_ms),
            version_policy: self.version_policy.or(file.version_policy),
            cache_bytes: self.cache_bytes.or(file.cache_bytes),
            cache_ttl_ms: self.cache_ttl_ms.or(file.cache_ttl_ms),
            batching: self.batching.or(file.batching),
            sequences: self.sequences.or(file.sequences),
            warm_up: if self.warm_up.is_empty() { file.warm_up } else { self.warm_up },
        }
    }

    /// Checks what is said of a model together with what its own file says, and keeps it for as long as the
    /// model is registered.
    ///
    /// # Errors
    /// As [`Deployment::check`] and [`ModelConfig::of`]; [`ModelError::Io`], after which the earlier one
    /// stands.
    pub fn save(&self, repository: &Repository, name: &str) -> Result<(), DeployError> {
        let file = ModelConfig::of(repository, name)?.deployment;
        self.check(repository, name)?;
        // Variants of the file may have gone; they are looked at where the file is.
        self.clone().over(Self { variants: Vec::new(), ..file }).check(repository, name)?;
        let path = path(repository, name);
        let failed = |source| {
            DeployError::from(ModelError::Io { action: "write", path: path.clone(), source })
        };
        let folder = repository.root().join(name);
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|e| failed(e.into()))?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map(drop).map_err(|error| failed(error.error))
    }

    /// Whether every variant can stand in for the model, and what is said of batches, of runs before
    /// the first task and of sequences is something that it can do.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`]; [`DeployError::Variant`] for one with other inputs or outputs, for the
    /// model itself, and for more than 16; [`DeployError::Batching`] for more than [`Batching::MAX`] tasks
    /// of a run, preferred sizes above the most or more than [`Batching::PREFERRED_MAX`] of them, and a
    /// delay above [`Batching::DELAY_US_MAX`]; [`DeployError::WarmUp`] for more than 16 runs, and for one
    /// whose shapes are none of the model's inputs; [`DeployError::Sequences`] as [`Sequences::check`].
    pub fn check(&self, repository: &Repository, name: &str) -> Result<(), DeployError> {
        self.check_for(repository, &repository.get(name, None)?)
    }

    /// The same of one version.
    fn check_for(&self, repository: &Repository, model: &Entry) -> Result<(), DeployError> {
        let name = model.name.as_str();
        let refused = |variant: &str, reason: String| {
            let (model, variant) = (name.to_owned(), variant.to_owned());
            Err(DeployError::Variant { model, variant, reason })
        };
        if let Some(sequences) = &self.sequences {
            sequences.check(name, &model.inputs, &model.outputs)?;
        }
        if let Some(variant) = self.variants.get(VARIANTS_MAX) {
            return refused(variant, format!("a model has {VARIANTS_MAX} at most"));
        }
        for variant in &self.variants {
            if variant == name {
                return refused(variant, "it is the model itself".to_owned());
            }
            let other = repository.get(variant, None)?;
            for (what, own, others) in [
                ("inputs", &model.inputs, &other.inputs),
                ("outputs", &model.outputs, &other.outputs),
            ] {
                if own != others {
                    let (own, others) = (list(own), list(others));
                    return refused(variant, format!("its {what} are {others}, expected {own}"));
                }
            }
        }
        if let Some(batching) = &self.batching {
            batching::check(batching)
                .map_err(|reason| DeployError::Batching { model: name.to_owned(), reason })?;
        }
        warm_up::inputs(&self.warm_up, &model.inputs)
            .map(drop)
            .map_err(|(run, reason)| DeployError::WarmUp { model: name.to_owned(), run, reason })
    }

    /// The same for the coordinator and one version of the model, with the newest versions of the
    /// variants; those that are no longer registered are left out, and runs that the version cannot make.
    #[must_use]
    pub fn needs(&self, repository: &Repository, model: &ModelRef) -> ModelNeeds {
        let own = repository.get(&model.name, Some(model.version)).ok();
        let file = ModelConfig::of(repository, &model.name).unwrap_or_default();
        let warm_up = own.map(|mut entry| {
            file.narrow(&mut entry.inputs);
            warm_up::inputs(&self.warm_up, &entry.inputs)
        });
        let warm_up = warm_up.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|(run, reason)| {
            tracing::warn!(%model, run, reason, "the version is not warmed up");
            Vec::new()
        });
        let newest = |name: &String| repository.get(name, None).ok().map(reference);
        ModelNeeds {
            memory_bytes: self.memory_bytes,
            backend: self.backend.clone(),
            family: self.family.clone(),
            variants: self.variants.iter().filter_map(newest).collect(),
            run_limit: self.run_limit_ms.map(|limit| Duration::from_millis(limit.get())),
            batching: self.batching.clone(),
            warm_up,
        }
    }
}

fn reference(entry: Entry) -> ModelRef {
    let Entry { name, version, sha256, .. } = entry;
    ModelRef { name, version, sha256 }
}

fn path(repository: &Repository, name: &str) -> PathBuf {
    repository.root().join(name).join(FILE)
}

fn list(specs: &[ValueSpec]) -> String {
    let one = |spec: &ValueSpec| format!("{}: {}", spec.name, spec.ty);
    specs.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::tests::repository;

    #[test]
    fn what_is_said_of_a_model_stays_with_it() {
        let (folder, repository, model) = repository();
        repository.add("other", folder.path().join("relu.onnx")).expect("a good model");
        let wish = Deployment {
            memory_bytes: Some(5),
            variants: vec!["other".to_owned()],
            ..Deployment::default()
        };
        wish.save(&repository, &model.name).expect("it can stand in");
        assert_eq!(Deployment::of(&repository, &model.name).expect("saved"), wish);
        let needs = wish.needs(&repository, &model);
        assert_eq!((needs.memory_bytes, needs.variants[0].name.as_str()), (Some(5), "other"));
        // The file is no version, and no model.
        assert_eq!(repository.list().expect("ours").len(), 2);
        repository.remove("other", None).expect("it is there");
        assert!(wish.needs(&repository, &model).variants.is_empty());
        std::fs::write(path(&repository, &model.name), "{\"memory\":1}").expect("ours");
        assert!(Deployment::of(&repository, &model.name).is_err());
    }

    #[test]
    fn what_cannot_stand_in_is_refused() {
        let (_folder, repository, model) = repository();
        for (variants, part) in [
            (vec!["nope".to_owned()], "nope"),
            (vec![model.name.clone()], "itself"),
            (vec!["x".to_owned(); 17], "16 at most"),
        ] {
            let wish = Deployment { variants, ..Deployment::default() };
            let error = wish.save(&repository, &model.name).expect_err("it cannot");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(
            Deployment::of(&repository, &model.name).expect("nothing was kept"),
            Deployment::default()
        );
    }
}
