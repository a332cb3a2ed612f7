//! Routes that add, remove, load and unload registered models.

use super::upload;
use crate::access::Caller;
use crate::catalog::{LoadOutcome, ModelEntry};
use crate::cluster::admin::Patience;
use crate::deployment::{Deployment, DeploymentPatch};
use crate::extract::{Params, Whole};
use crate::fault::{ClusterError, Fault};
use crate::oip;
use crate::state::ServerState;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use lgp_sdk::model::ValueSpec;
use serde_json::{Value, json};

/// `GET models`: a bare array of every version in the repository, including unusable ones.
pub(crate) async fn list(
    State(state): State<ServerState>,
    caller: Caller,
) -> Result<Json<Value>, ClusterError> {
    let mut all = Vec::new();
    for (name, version, found) in state.catalog().survey().await? {
        if !caller.may_use(&name) {
            continue;
        }
        all.push(match found {
            Ok(entry) => describe(&state, &entry).await,
            Err(fault) => {
                let deployment = state.catalog().deployment(&name).await;
                json!({
                    "name": name,
                    "version": version,
                    "sha256": null,
                    "state": "unavailable",
                    "reason": fault.message,
                    "workers": [],
                    "inputs": [],
                    "outputs": [],
                    "deployment": deployment,
                })
            }
        });
    }
    Ok(Json(Value::Array(all)))
}

/// `GET models/{model}[/versions/{version}]`: this version, or the one in use if none is named, with the names of
/// its classes and the scaling of its image inputs.
pub(crate) async fn show(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let (name, version) = named(&params)?;
    // For an alias, the first target.
    let found = state.catalog().named(name, version).await?;
    let mut value = describe(&state, found.entry()).await;
    let entry = found.entry().clone();
    // The first call reads files.
    let said = tokio::task::spawn_blocking(move || (labels(&entry), entry.scaling())).await;
    let (labels, scaling) = said.map_err(Fault::internal)?;
    value["labels"] = json!(labels);
    value["scaling"] = json!(scaling);
    Ok(Json(value))
}

/// The most class names in a description; clients read longer lists from the model's own source.
const LABELS_MAX: usize = 1_000;
/// The most bytes of all class names.
const LABELS_BYTES_MAX: usize = 64 << 10;

/// The names of a model's classes, if known and short.
fn labels(entry: &ModelEntry) -> Option<Vec<String>> {
    let labels = entry.labels();
    let bytes: usize = labels.iter().map(String::len).sum();
    let is_short = (1..=LABELS_MAX).contains(&labels.len()) && bytes <= LABELS_BYTES_MAX;
    is_short.then(|| labels.to_vec())
}

/// `POST models/{model}`: 201. The body is an ONNX file, or multipart with the file as `model` and its external
/// data as `data` parts. The workers load the model before the answer.
pub(crate) async fn add(
    State(state): State<ServerState>,
    params: Params,
    request: Request,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let name = params.get("model");
    let received = upload::receive(&state, request).await?;
    let outcome = state.catalog().add(name, received.model()).await?;
    Ok((StatusCode::CREATED, Json(loaded(&state, &outcome).await)))
}

/// `DELETE models/{model}[/versions/{version}]`: removes this version or all, from workers and disk.
pub(crate) async fn remove(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let (name, version) = named(&params)?;
    state.catalog().remove(name, version).await?;
    state.metrics().remove(name, version);
    Ok(Json(json!({ "name": name, "version": version, "removed": true })))
}

/// `POST models/{model}[/versions/{version}]/load`: loads this version, or those that the policy chooses, on every
/// worker.
pub(crate) async fn load(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let (name, version) = named(&params)?;
    let outcome = state.catalog().load(name, version).await?;
    Ok(Json(loaded(&state, &outcome).await))
}

/// `POST models/{model}[/versions/{version}]/unload {"timeout_s":60}`: unloads this version or all from every
/// worker; the files stay. `ended` lists the tasks whose attempt exceeded the timeout and was ended.
pub(crate) async fn unload(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let ((name, version), limit) = (named(&params)?, Patience::of(&body)?);
    let (entry, ended) = state.catalog().unload_within(name, version, limit).await?;
    let mut value = describe(&state, &entry).await;
    value["ended"] = json!(ended);
    Ok(Json(value))
}

/// `PUT models/{model}/deployment {"memory_bytes","backend","family","variants"}`: sets where the model runs and
/// which models may answer in its place, also after a restart. Omitted fields are unset.
pub(crate) async fn deploy(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let wish: Deployment = body.json()?;
    let entry = state.catalog().deploy(params.get("model"), wish).await?;
    Ok(Json(describe(&state, &entry).await))
}

/// `PATCH models/{model}/deployment`: like PUT, but omitted fields keep their values; `null` unsets a field.
pub(crate) async fn amend(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let patch: DeploymentPatch = body.json()?;
    let entry = state.catalog().amend(params.get("model"), patch).await?;
    Ok(Json(describe(&state, &entry).await))
}

/// The model, and optionally the version, in the path.
pub(super) fn named(params: &Params) -> Result<(&str, Option<u64>), Fault> {
    let version = params.find("version").map(oip::parse_version).transpose()?;
    Ok((params.get("model"), version))
}

async fn loaded(state: &ServerState, outcome: &LoadOutcome) -> Value {
    let mut value = describe(state, &outcome.entry).await;
    // The heartbeat that lists the model may arrive later than the load's answer.
    if !outcome.workers.is_empty() {
        value["state"] = json!("ready");
        value["reason"] = json!("");
        value["workers"] = json!(outcome.workers);
    }
    value
}

async fn describe(state: &ServerState, entry: &ModelEntry) -> Value {
    let deployment = state.catalog().deployment(entry.name()).await;
    let readiness = state.catalog().readiness(entry);
    let tensor = |spec: &ValueSpec| {
        json!({
            "name": spec.name,
            "datatype": oip::datatype_name(spec.ty.dtype),
            "shape": oip::wire_dims(spec.ty.shape.as_ref()),
        })
    };
    json!({
        "name": entry.name(),
        "version": entry.version(),
        "sha256": entry.model().sha256,
        "state": readiness.name().to_ascii_lowercase(),
        "reason": readiness.reason(),
        "workers": state.catalog().workers(entry),
        "inputs": entry.all_inputs().iter().map(tensor).collect::<Vec<_>>(),
        "outputs": entry.all_outputs().iter().map(tensor).collect::<Vec<_>>(),
        "deployment": deployment,
    })
}
