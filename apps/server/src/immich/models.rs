//! The models that Immich names, mapped to the repository's: `ViT-B-32__openai` of the type `visual` is the model
//! `ViT-B-32__openai.visual`.

use super::beside::wrong_model;
use super::tokens::Tokens;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::fault::Fault;
use crate::oip::{self, Answer, Given, InferRequest};
use crate::state::ServerState;
use lgp_sdk::cluster::ModelRef;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, NamedTensor, Tensor};
use quick_cache::sync::Cache;
use std::sync::Arc;

/// The most cached tokenizers; a cluster has one or two text models.
const TOKENS_KEPT: usize = 8;

/// Immich's view of the server's models, for one request. Clones share the tokenizer cache.
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

    /// Uses the models for another request.
    pub(super) fn used_by(self, call: Call) -> Self {
        Self { call, ..self }
    }

    pub(super) fn state(&self) -> &ServerState {
        &self.state
    }

    /// Finds a model by Immich's name and type, and loads it if need be. An alias is resolved for the whole
    /// request, because the inputs are made by the files beside the model that answers.
    ///
    /// # Errors
    /// 404 that names the model to register; the error if the model cannot be loaded.
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

    /// The tokenizer of a model, read once.
    pub(super) async fn tokens(&self, entry: &ModelEntry) -> Result<Arc<Tokens>, Fault> {
        let key = entry.model();
        if let Some(tokens) = self.tokens.get(key) {
            return Ok(tokens);
        }
        let read = entry.clone();
        // The file has megabytes.
        let tokens = oip::off_loop(oip::LARGE_BYTES, move || Tokens::read(&read)).await?;
        let tokens = Arc::new(tokens);
        self.tokens.insert(key.clone(), Arc::clone(&tokens));
        Ok(tokens)
    }

    /// Runs a model once like any inference request. The log has a line about it.
    ///
    /// # Errors
    /// If the inputs do not fit the model, and the errors of inference.
    pub(super) async fn run(
        &self,
        named: &Named,
        inputs: Vec<NamedTensor>,
    ) -> Result<Vec<Tensor>, Fault> {
        self.run_for(&self.call, named, inputs).await
    }

    /// Like `run`, for a model that runs many times in a request. Adds nothing to the log's span, because a span
    /// keeps every recorded field until it ends.
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

/// The name in the repository. Immich also writes `ViT-B-32::openai`, and an owner before a name.
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

/// The single input of an image network.
pub(super) fn image_input(entry: &ModelEntry) -> Result<&ValueSpec, Fault> {
    match entry.inputs() {
        [spec] => Ok(spec),
        inputs => {
            let count = inputs.len();
            Err(wrong_model(entry, format!("it has {count} inputs, expected one image")))
        }
    }
}

/// The batch size of a network: `wanted` if it takes any number, up to the maximum in its config file.
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

/// The values of an output; all must be finite.
///
/// # Errors
/// 400 for a wrong type of output, 500 for values that are not finite.
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

/// Embeddings as Immich stores them: JSON in a string.
///
/// # Errors
/// As [`numbers`]; also if the output is not one list of numbers for each of `count` items.
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
