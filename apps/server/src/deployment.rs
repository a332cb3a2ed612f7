//! The settings of a registered model (its deployment), kept beside the model's versions.

mod batching;
mod config;
mod patch;
mod ports;
mod sequences;
#[cfg(test)]
pub(crate) mod testing;
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
/// The most variants that one model may have.
const VARIANTS_MAX: usize = 16;

/// Why a deployment was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeployError {
    /// An error of the repository.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A variant that cannot answer in the model's place.
    #[error("model '{variant}' cannot stand in for '{model}': {reason}")]
    Variant {
        /// The model.
        model: String,
        /// The variant.
        variant: String,
        /// Why the variant cannot answer.
        reason: String,
    },
    /// A config file of a model that cannot be read or contradicts the model.
    #[error("{file} of model '{model}': {reason}")]
    Config {
        /// The model.
        model: String,
        /// The config file in the model's folder.
        file: &'static str,
        /// What is wrong with the file.
        reason: String,
    },
    /// A model that cannot keep sequences as its deployment asks.
    #[error("model '{model}' cannot keep such sequences: {reason}")]
    Sequences {
        /// The model.
        model: String,
        /// Why the model cannot keep them.
        reason: String,
    },
    /// Settings of batches that no worker can follow.
    #[error("batching of '{model}': {reason}")]
    Batching {
        /// The model.
        model: String,
        /// What was wrong, and what is expected.
        reason: String,
    },
    /// A warm-up run whose inputs the model does not take.
    #[error("warm-up run {run} of '{model}': {reason}")]
    WarmUp {
        /// The model.
        model: String,
        /// The number of the run, from 1.
        run: usize,
        /// What was wrong, and what is expected.
        reason: String,
    },
}

/// Where a model runs, how it runs, and which models may answer in its place.
///
/// ```
/// use lgp_inference::Repository;
/// use lgp_server::Deployment;
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
    /// Device memory that the model takes, in bytes; measured when unset.
    pub memory_bytes: Option<u64>,
    /// The backend that the model runs best on, such as `opencl`.
    pub backend: Option<String>,
    /// The family of chips that the model runs best on, such as `Polaris`.
    pub family: Option<String>,
    /// Models that may answer in this model's place. Their inputs and outputs must be the same.
    pub variants: Vec<String>,
    /// The longest that one run may take, in milliseconds, for tasks without a limit of their own.
    pub run_limit_ms: Option<NonZeroU64>,
    /// The versions to load. When unset: the versions that were loaded last, and each added version.
    pub version_policy: Option<VersionPolicy>,
    /// Bytes of answers that the server caches for inferences with the same inputs; no cache when unset. Only for
    /// models whose outputs depend on their inputs alone.
    pub cache_bytes: Option<NonZeroU64>,
    /// How long an answer is cached, in milliseconds. When unset, until another answer needs the space.
    pub cache_ttl_ms: Option<NonZeroU64>,
    /// How inferences are batched; when unset, as the worker's settings say.
    pub batching: Option<Batching>,
    /// How the model keeps sequences; when unset, it keeps none.
    pub sequences: Option<Sequences>,
    /// Runs that each device makes before the model counts as ready there.
    pub warm_up: Vec<WarmUp>,
}

impl Deployment {
    /// The settings that apply to a model. A field comes from [`Deployment::save`] (an administrator's settings),
    /// else from the model's config file (see [`ModelConfig`]), else from the default.
    ///
    /// # Errors
    /// [`ModelError::Io`] for a file that cannot be read or parsed, and the errors of [`ModelConfig::of`].
    pub fn of(repository: &Repository, name: &str) -> Result<Self, DeployError> {
        let file = ModelConfig::of(repository, name)?;
        Ok(Self::beside(&file, repository, name)?)
    }

    /// Like [`Deployment::of`], for a model whose config file has been read already.
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

    /// The administrator's settings alone, as [`Deployment::save`] kept them, without the model's config file; the
    /// default if none were kept.
    ///
    /// # Errors
    /// [`ModelError::Io`] for a file that cannot be read or parsed.
    pub fn said(repository: &Repository, name: &str) -> Result<Self, ModelError> {
        // A name with path separators must not lead out of the repository; no model has such a name.
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

    /// These settings, with each unset field taken from `file`.
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

    /// Checks these settings together with the model's config file, then keeps them for as long as the model is
    /// registered.
    ///
    /// # Errors
    /// As [`Deployment::check`] and [`ModelConfig::of`]; [`ModelError::Io`], after which the earlier settings still
    /// apply.
    pub fn save(&self, repository: &Repository, name: &str) -> Result<(), DeployError> {
        let file = ModelConfig::of(repository, name)?.deployment;
        self.check(repository, name)?;
        // Variants that the config file names may be gone by now; `ModelConfig::check` looks at those.
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

    /// Checks that every variant can stand in for the model, and that the model can do what is asked of batches,
    /// warm-up runs and sequences.
    ///
    /// # Errors
    /// [`ModelError::UnknownModel`]; [`DeployError::Variant`] for a variant with other inputs or outputs, for the
    /// model itself, and for more than 16 variants; [`DeployError::Batching`] for more than [`Batching::MAX`] tasks
    /// in a run, preferred sizes above the maximum, more than [`Batching::PREFERRED_MAX`] preferred sizes, and a
    /// delay above [`Batching::DELAY_US_MAX`]; [`DeployError::WarmUp`] for more than 16 runs and for a run whose
    /// shapes do not fit the model's inputs; [`DeployError::Sequences`] as [`Sequences::check`].
    pub fn check(&self, repository: &Repository, name: &str) -> Result<(), DeployError> {
        self.check_for(repository, &repository.get(name, None)?)
    }

    /// Like [`Deployment::check`], for one version.
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

    /// The settings in the coordinator's form, for one version of the model and with the newest version of each
    /// variant. Variants that are no longer registered and warm-up runs that the version cannot make are left out.
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
    use super::testing::repository;
    use super::*;

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
        // `deployment.json` counts neither as a version nor as a model.
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
