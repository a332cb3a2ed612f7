//! One version of a model, as requests see it.

use crate::cache::ResponseCache;
use crate::ensemble::Ensemble;
use crate::sequences::Stateful;
use lgp_sdk::vision::Scaling;
use lgp_sdk::{Beside, Entry, ModelConfig, ModelRef, ValueSpec, class_names};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// One registered version of a model. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ModelEntry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: ModelRef,
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    /// Where its files are.
    folder: PathBuf,
    /// What the file beside its versions says.
    config: Arc<ModelConfig>,
    /// Notes that its file carries.
    metadata: Arc<BTreeMap<String, String>>,
    /// Names of its classes, read when they are asked for.
    labels: OnceLock<Vec<String>>,
    /// Its answers, where they are to be kept.
    cache: Option<Arc<ResponseCache>>,
    /// What it does with sequences, where it keeps some.
    stateful: Option<Arc<Stateful>>,
    /// Its steps, where it is an ensemble.
    ensemble: Option<Arc<Ensemble>>,
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

    /// What the file beside its versions said when they were read.
    pub(super) fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// What requests for inference bring.
    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.0.inputs
    }

    /// What they are answered.
    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.0.outputs
    }

    /// Rows of one inference, as its file has them for Triton's clients; 0 where they are part of the shapes.
    pub(crate) fn max_batch_size(&self) -> u32 {
        self.0.config.max_batch_size
    }

    /// The most rows that one inference takes, where its file says so.
    pub(crate) fn rows_max(&self) -> Option<usize> {
        // With sequences, batches are part of the shapes.
        let most = self.max_batch_size();
        let is_said = most > 0 && self.stateful().is_none();
        is_said.then(|| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Whether the first dimensions of all that it takes and gives are open, which are then the rows of a batch,
    /// as Triton sees it. What sequences carry has none.
    pub(crate) fn has_rows(&self) -> bool {
        let is_open = |spec: &ValueSpec| {
            let first = spec.ty.shape.as_ref().and_then(|shape| shape.0.first());
            first.is_some_and(|first| first.known().is_none())
        };
        self.stateful().is_none() && self.0.inputs.iter().chain(&self.0.outputs).all(is_open)
    }

    /// What a run is given: of a model that keeps sequences, also what the server itself gives it.
    pub(crate) fn all_inputs(&self) -> &[ValueSpec] {
        self.0.stateful.as_ref().map_or(&self.0.inputs, |stateful| stateful.inputs())
    }

    /// What a run returns.
    pub(crate) fn all_outputs(&self) -> &[ValueSpec] {
        self.0.stateful.as_ref().map_or(&self.0.outputs, |stateful| stateful.outputs())
    }

    /// What it does with sequences, where it keeps some.
    pub(crate) fn stateful(&self) -> Option<&Stateful> {
        self.0.stateful.as_deref()
    }

    /// What its classes are called, as [`class_names`] finds them with the file that its configuration
    /// names; none where nothing says so. The first call reads it, until the model is loaded anew.
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

    /// How pictures become its input, as the file beside it says; none where there is no such file.
    pub(crate) fn scaling(&self) -> Option<Scaling> {
        let path = self.0.folder.join("model.onnx");
        let is_there = path.with_extension("toml").exists();
        is_there.then(|| Beside::of(&path).ok()).flatten().map(|beside| beside.scaling)
    }

    /// The text of a file beside the model, or else beside its versions; none where there is no such file.
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

    /// Where its answers are kept, if they are to be.
    pub(crate) fn cache(&self) -> Option<&Arc<ResponseCache>> {
        self.0.cache.as_ref()
    }

    /// Its steps, where it is an ensemble.
    pub(crate) fn ensemble(&self) -> Option<&Arc<Ensemble>> {
        self.0.ensemble.as_ref()
    }

    /// A version, and what the file beside it says.
    pub(super) fn new(entry: Entry, config: Arc<ModelConfig>) -> Self {
        let Entry { name, version, path, sha256, mut inputs, outputs, metadata, .. } = entry;
        config.narrow(&mut inputs);
        let model = ModelRef { name, version, sha256 };
        let folder = path.parent().unwrap_or(&path).to_owned();
        let metadata = Arc::new(metadata);
        Self(Arc::new(Inner { inputs, outputs, metadata, ..Inner::bare(model, folder, config) }))
    }

    /// An ensemble whose file is in a folder.
    pub(super) fn of_ensemble(model: ModelRef, folder: PathBuf, ensemble: Ensemble) -> Self {
        let (inputs, outputs) = (ensemble.inputs().to_vec(), ensemble.outputs().to_vec());
        let ensemble = Some(Arc::new(ensemble));
        Self(Arc::new(Inner {
            inputs,
            outputs,
            ensemble,
            ..Inner::bare(model, folder, Arc::default())
        }))
    }

    /// The same, whose answers are kept.
    pub(super) fn with(&self, cache: Arc<ResponseCache>) -> Self {
        let (inputs, outputs) = (self.0.inputs.clone(), self.0.outputs.clone());
        Self(Arc::new(Inner { inputs, outputs, cache: Some(cache), ..self.bare() }))
    }

    /// The same, which keeps sequences.
    pub(super) fn keeping(&self, wish: &lgp_sdk::Sequences) -> Self {
        let (inputs, outputs) = (self.0.inputs.clone(), self.0.outputs.clone());
        let stateful = Stateful::new(self.name(), wish.clone(), inputs, outputs);
        let (inputs, outputs) = (stateful.visible_inputs(), stateful.visible_outputs());
        let stateful = Some(Arc::new(stateful));
        Self(Arc::new(Inner { inputs, outputs, stateful, ..self.bare() }))
    }

    /// The same model, of which nothing is said yet.
    fn bare(&self) -> Inner {
        let Inner { model, folder, config, metadata, .. } = &*self.0;
        let metadata = Arc::clone(metadata);
        Inner { metadata, ..Inner::bare(model.clone(), folder.clone(), Arc::clone(config)) }
    }
}

impl Inner {
    /// A model without values, of which nothing is said yet.
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
        }
    }
}
