//! The models that Immich names. Each is one of the repository: `ViT-B-32__openai` of the type `visual` is
//! the model `ViT-B-32__openai.visual`.

use super::tokens::Tokens;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::fault::Fault;
use crate::oip::{self, Answer, Given, InferRequest};
use crate::state::ServerState;
use lgp_sdk::{DType, Dim, ModelRef, NamedTensor, Tensor, ValueSpec};
use quick_cache::sync::Cache;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Tokenizers that are kept; a cluster has one or two models of texts.
const TOKENS_KEPT: usize = 8;
/// The largest file of settings beside a model.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// The server's models as Immich knows them, for a request. Clones share what is kept.
#[derive(Clone)]
pub(super) struct Models {
    state: ServerState,
    tokens: Arc<Cache<ModelRef, Arc<Tokens>>>,
    call: Call,
}

impl Models {
    pub(super) fn new(state: ServerState) -> Self {
        Self { state, tokens: Arc::new(Cache::new(TOKENS_KEPT)), call: Call::unseen() }
    }

    /// The same for another request.
    pub(super) fn used_by(self, call: Call) -> Self {
        Self { call, ..self }
    }

    pub(super) fn state(&self) -> &ServerState {
        &self.state
    }

    /// A model by Immich's name for it and its type; of an alias the one that answers this request, for its
    /// inputs are made as the files beside it say. It is loaded if need be.
    ///
    /// # Errors
    /// 404 that says which model is to be registered; what keeps it from being loaded.
    pub(super) async fn find(&self, given: &str, kind: &str) -> Result<Named, Fault> {
        let name = registered(given, kind);
        let catalog = self.state.catalog();
        let named = catalog.named(&name, None).await.map_err(|fault| match fault.code {
            "unknown_model" => missing(given, &name),
            _ => fault,
        })?;
        if named.is_alias() {
            return catalog.settled(named).await;
        }
        if catalog.require_ready(named.entry()).is_ok() {
            return Ok(named);
        }
        catalog.demand(named.entry(), self.state.config().deadline_max()).await?;
        catalog.named(&name, None).await
    }

    /// What turns a model's texts into numbers, read once.
    pub(super) async fn tokens(&self, entry: &ModelEntry) -> Result<Arc<Tokens>, Fault> {
        let key = entry.model();
        if let Some(tokens) = self.tokens.get(key) {
            return Ok(tokens);
        }
        let read = entry.clone();
        // Such a file has megabytes.
        let tokens = oip::off_loop(oip::LARGE_BYTES, move || Tokens::read(&read)).await?;
        let tokens = Arc::new(tokens);
        self.tokens.insert(key.clone(), Arc::clone(&tokens));
        Ok(tokens)
    }

    /// Runs a model once, as any request for inference does. Lines of the log tell of it.
    ///
    /// # Errors
    /// Where the inputs do not fit it, and what inference is refused for.
    pub(super) async fn run(
        &self,
        named: &Named,
        inputs: Vec<NamedTensor>,
    ) -> Result<Vec<Tensor>, Fault> {
        self.run_for(&self.call, named, inputs).await
    }

    /// The same for a model that runs many times. Lines of the log tell nothing of it: what a span is told is
    /// kept as long as the span.
    pub(super) async fn run_again(
        &self,
        named: &Named,
        inputs: Vec<NamedTensor>,
    ) -> Result<Vec<Tensor>, Fault> {
        self.run_for(&self.call.within(), named, inputs).await
    }

    async fn run_for(
        &self,
        call: &Call,
        named: &Named,
        inputs: Vec<NamedTensor>,
    ) -> Result<Vec<Tensor>, Fault> {
        let bytes = inputs.iter().map(|input| input.tensor.packed_len()).sum();
        let decode = move |entry: &ModelEntry| {
            oip::check_inputs(entry.inputs(), &inputs)?;
            let given = Given { inputs: inputs.into(), ..Given::default() };
            InferRequest::new(given, None, entry.outputs())
        };
        let encode = |answer: Answer| {
            let Answer { entry, mut outputs, .. } = answer;
            let take = |spec: &ValueSpec| {
                let at = outputs.iter().position(|output| output.name == spec.name);
                let at = at.ok_or_else(|| Fault::internal("an output is missing"))?;
                Ok(outputs.swap_remove(at).tensor)
            };
            entry.outputs().iter().map(take).collect()
        };
        oip::serve(&self.state, (call, named), (bytes, decode), encode).await
    }
}

/// The name in the repository. Immich writes `ViT-B-32::openai` too, and puts an owner before a name.
fn registered(given: &str, kind: &str) -> String {
    let own = given.rsplit('/').next().unwrap_or(given);
    format!("{}.{kind}", own.replace("::", "__"))
}

fn missing(given: &str, name: &str) -> Fault {
    let what =
        format!("Immich's model '{given}' needs the model '{name}', which is not registered");
    Fault::not_found("unknown_model", what).hint(format!(
        "expected {name}/1/model.onnx in the folder of models, and the files of its settings beside it: \
         radeon-cluster models add {name} FILE"
    ))
}

/// Settings of a file beside a model.
///
/// # Errors
/// 500 that names the file where it cannot be used.
pub(super) fn settings<T: DeserializeOwned>(
    entry: &ModelEntry,
    file: &str,
) -> Result<Option<T>, Fault> {
    let text =
        entry.beside(file, SETTINGS_BYTES_MAX).map_err(|error| unusable(entry, file, error))?;
    let parsed = text.map(|text| serde_json::from_str(&text)).transpose();
    parsed.map_err(|error| unusable(entry, file, error))
}

/// A file beside a model that cannot be used: the server's owner has to mend it, and no client.
pub(super) fn unusable(entry: &ModelEntry, file: &str, why: impl std::fmt::Display) -> Fault {
    let what = format!("the file {file} of the model '{}' is not usable: {why}", entry.name());
    Fault::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "model_files", what)
}

/// A model that is of another kind than is asked for.
pub(super) fn wrong_model(entry: &ModelEntry, why: impl std::fmt::Display) -> Fault {
    Fault::bad_input(format!("the model '{}' does not fit: {why}", entry.name()))
}

/// The one input of a network that sees pictures.
pub(super) fn image_input(entry: &ModelEntry) -> Result<&ValueSpec, Fault> {
    match entry.inputs() {
        [spec] => Ok(spec),
        inputs => {
            let count = inputs.len();
            Err(wrong_model(entry, format!("it has {count} inputs, expected one image")))
        }
    }
}

/// How many pictures one run of a network takes: as many as are wanted, where it takes any number
/// and its file says nothing else.
pub(super) fn batch(entry: &ModelEntry, spec: &ValueSpec, wanted: usize) -> Result<usize, Fault> {
    let first = spec.ty.shape.as_ref().and_then(|shape| shape.0.first());
    match first.and_then(Dim::known) {
        None => Ok(entry.rows_max().map_or(wanted, |most| wanted.min(most))),
        Some(1) => Ok(1),
        Some(count) => Err(wrong_model(
            entry,
            format!("it takes {count} pictures at once, expected one or any number"),
        )),
    }
}

/// The numbers of an output, all of which are finite.
///
/// # Errors
/// 400 where the model is of another kind, 500 where it has computed none.
pub(super) fn numbers<'a>(entry: &ModelEntry, tensor: &'a Tensor) -> Result<&'a [f32], Fault> {
    let values = tensor.as_slice::<f32>().map_err(|_| {
        let given = oip::datatype_name(tensor.dtype());
        let expected = oip::datatype_name(DType::F32);
        wrong_model(entry, format!("an output has the datatype {given}, expected {expected}"))
    })?;
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => {
            Err(Fault::internal(format!("'{}' answers numbers that are not finite", entry.name())))
        }
    }
}

/// An embedding as Immich stores it: JSON in a string.
///
/// # Errors
/// As [`numbers`]; where the output is not one list of numbers for each of `count` things.
pub(super) fn embeddings(
    entry: &ModelEntry,
    outputs: &[Tensor],
    count: usize,
) -> Result<Vec<String>, Fault> {
    let first = outputs.first().ok_or_else(|| wrong_model(entry, "it has no output"))?;
    let dims = first.shape().dims();
    match *dims {
        [rows, length] if rows == count && length > 0 => numbers(entry, first)?
            .chunks_exact(length)
            .map(|row| serde_json::to_string(row).map_err(Fault::internal))
            .collect(),
        _ => Err(wrong_model(
            entry,
            format!(
                "its output has the shape {dims:?}, expected [{count}, length of an embedding]"
            ),
        )),
    }
}
