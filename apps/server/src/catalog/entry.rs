//! A version of a model, or an ensemble, as requests see it.

use crate::cache::ResponseCache;
use crate::deployment::ModelConfig;
use crate::ensemble::{Ensemble, ModelName, Signature};
use crate::sequences::Stateful;
use lgp_common::vision::Scaling;
use lgp_common::{Beside, class_names};
use lgp_inference::Entry;
use lgp_sdk::cluster::ModelRef;
use lgp_sdk::model::ValueSpec;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The models that an ensemble names, in their present versions.
pub(super) type Models = BTreeMap<ModelName, ModelEntry>;

/// A registered version of a model. Clones share its data.
#[derive(Debug, Clone)]
pub(crate) struct ModelEntry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelRef,
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    /// The folder of the version's files.
    folder: PathBuf,
    /// The model's config, read with the version.
    config: Arc<ModelConfig>,
    /// The metadata in the model's file.
    metadata: Arc<BTreeMap<String, String>>,
    /// The names of the classes, read on first use.
    labels: OnceLock<Vec<String>>,
    /// The response cache, if answers are cached.
    cache: Option<Arc<ResponseCache>>,
    /// The sequences that the model keeps, if it does.
    stateful: Option<Arc<Stateful>>,
    /// The steps, if the entry is an ensemble.
    ensemble: Option<Arc<Ensemble>>,
    /// The models that the steps name; empty if the entry is no ensemble.
    models: Models,
}

impl ModelEntry {
    pub(crate) fn model(&self) -> &ModelRef {
        &self.0.model
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.model.name
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.model.version
    }

    /// The model's config as it was when the version was read.
    pub(super) fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// The inputs that inference requests bring.
    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.0.inputs
    }

    /// The outputs that inference requests get.
    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.0.outputs
    }

    /// The most rows of one inference, as Triton's clients see it; 0 if the shapes include the batch.
    pub(crate) fn max_batch_size(&self) -> u32 {
        self.0.config.max_batch_size
    }

    /// The most rows of one inference, if the config file sets it.
    pub(crate) fn rows_max(&self) -> Option<usize> {
        // With sequences, the shapes include the batch.
        let most = self.max_batch_size();
        let is_said = most > 0 && self.stateful().is_none();
        is_said.then(|| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Whether the first dimension of every input and output is open, and so counts the rows of a batch in Triton's
    /// sense. Models that keep sequences have no such rows.
    pub(crate) fn has_rows(&self) -> bool {
        let is_open = |spec: &ValueSpec| {
            let first = spec.ty.shape.as_ref().and_then(|shape| shape.0.first());
            first.is_some_and(|first| first.known().is_none())
        };
        self.stateful().is_none() && self.0.inputs.iter().chain(&self.0.outputs).all(is_open)
    }

    /// The inputs of a run. For a model that keeps sequences, they include those that the server fills.
    pub(crate) fn all_inputs(&self) -> &[ValueSpec] {
        self.0.stateful.as_ref().map_or(&self.0.inputs, |stateful| stateful.inputs())
    }

    /// The outputs of a run. For a model that keeps sequences, they include the states.
    pub(crate) fn all_outputs(&self) -> &[ValueSpec] {
        self.0.stateful.as_ref().map_or(&self.0.outputs, |stateful| stateful.outputs())
    }

    /// The sequences that the model keeps, if it does.
    pub(crate) fn stateful(&self) -> Option<&Stateful> {
        self.0.stateful.as_deref()
    }

    /// The names of the classes, by [`class_names`] with the config's label file; empty if there are none. The
    /// first call reads them; they stay until the model is loaded anew.
    pub(crate) fn labels(&self) -> &[String] {
        self.0.labels.get_or_init(|| {
            let file = self.0.config.label_file.as_deref();
            let path = self.0.folder.join("model.onnx");
            let folder = &self.0.folder;
            class_names(&path, file, &self.0.metadata)
                .inspect_err(|error| tracing::warn!(%error, ?folder, "labels are not used"))
                .unwrap_or_default()
        })
    }

    /// The scaling of the image input, from the file beside the model; `None` without such a file.
    pub(crate) fn scaling(&self) -> Option<Scaling> {
        let path = self.0.folder.join("model.onnx");
        let is_there = path.with_extension("toml").exists();
        is_there.then(|| Beside::of(&path).ok()).flatten().map(|beside| beside.scaling)
    }

    /// The text of a file beside the model, or else beside its versions; `None` if neither exists.
    pub(crate) fn beside(&self, name: &str, bytes_max: u64) -> std::io::Result<Option<String>> {
        let above = self.0.folder.parent().unwrap_or(&self.0.folder);
        for folder in [&self.0.folder, above] {
            let file = match std::fs::File::open(folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            let mut text = String::new();
            file.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
            return match text.len() as u64 > bytes_max {
                true => Err(ErrorKind::FileTooLarge.into()),
                false => Ok(Some(text)),
            };
        }
        Ok(None)
    }

    /// The response cache, if answers are cached.
    pub(crate) fn cache(&self) -> Option<&Arc<ResponseCache>> {
        self.0.cache.as_ref()
    }

    /// The steps, if the entry is an ensemble.
    pub(crate) fn ensemble(&self) -> Option<&Arc<Ensemble>> {
        self.0.ensemble.as_ref()
    }

    /// The models that the steps run, which must be ready for the ensemble to be ready.
    pub(super) fn models_of_steps(&self) -> impl Iterator<Item = (&ModelName, &Self)> {
        let runs = |name: &ModelName| self.0.ensemble.as_ref().is_some_and(|it| it.runs(name));
        self.0.models.iter().filter(move |(name, _)| runs(name))
    }

    /// Whether the steps of both ensembles name the same models in the same versions.
    pub(super) fn has_models_of(&self, other: &Self) -> bool {
        let (own, others) = (&self.0.models, &other.0.models);
        let same = |(a, b): (&Self, &Self)| a.model() == b.model();
        own.len() == others.len() && own.values().zip(others.values()).all(same)
    }

    /// What a step must know of the model to run it.
    pub(super) fn signature(&self) -> Signature<'_> {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        Signature { inputs, outputs, keeps_sequences: self.stateful().is_some() }
    }

    /// A version with its model's config.
    pub(super) fn new(entry: Entry, config: Arc<ModelConfig>) -> Self {
        let Entry { name, version, path, sha256, mut inputs, outputs, metadata, .. } = entry;
        config.narrow(&mut inputs);
        let model = ModelRef { name, version, sha256 };
        let folder = path.parent().unwrap_or(&path).to_owned();
        let metadata = Arc::new(metadata);
        Self(Arc::new(Inner { inputs, outputs, metadata, ..Inner::bare(model, folder, config) }))
    }

    /// An ensemble with its file in `folder`, and the models that its steps name.
    pub(super) fn of_ensemble(
        model: ModelRef,
        folder: PathBuf,
        ensemble: Ensemble,
        models: Models,
    ) -> Self {
        let (inputs, outputs) = (ensemble.inputs().to_vec(), ensemble.outputs().to_vec());
        let ensemble = Some(Arc::new(ensemble));
        Self(Arc::new(Inner {
            inputs,
            outputs,
            ensemble,
            models,
            ..Inner::bare(model, folder, Arc::default())
        }))
    }

    /// A copy of the entry with a response cache.
    pub(super) fn with(&self, cache: Arc<ResponseCache>) -> Self {
        let (inputs, outputs) = (self.0.inputs.clone(), self.0.outputs.clone());
        Self(Arc::new(Inner { inputs, outputs, cache: Some(cache), ..self.bare() }))
    }

    /// A copy of the entry that keeps sequences.
    pub(super) fn keeping(&self, wish: &crate::deployment::Sequences) -> Self {
        let (inputs, outputs) = (self.0.inputs.clone(), self.0.outputs.clone());
        let stateful = Stateful::new(self.name(), wish.clone(), inputs, outputs);
        let (inputs, outputs) = (stateful.visible_inputs(), stateful.visible_outputs());
        let stateful = Some(Arc::new(stateful));
        Self(Arc::new(Inner { inputs, outputs, stateful, ..self.bare() }))
    }

    /// The bare entry, without inputs, outputs, cache, sequences and steps.
    fn bare(&self) -> Inner {
        let Inner { model, folder, config, metadata, .. } = &*self.0;
        let metadata = Arc::clone(metadata);
        Inner { metadata, ..Inner::bare(model.clone(), folder.clone(), Arc::clone(config)) }
    }
}

impl Inner {
    /// A bare entry, without inputs, outputs, cache, sequences and steps.
    fn bare(model: ModelRef, folder: PathBuf, config: Arc<ModelConfig>) -> Self {
        Self {
            model,
            inputs: Vec::new(),
            outputs: Vec::new(),
            folder,
            config,
            metadata: Arc::default(),
            labels: OnceLock::new(),
            cache: None,
            stateful: None,
            ensemble: None,
            models: Models::new(),
        }
    }
}
