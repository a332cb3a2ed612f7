//! A model's metadata, configuration and readiness.

use super::settings::{Settings, WarmUpInput, WarmUpRun};
use super::{datatype, signature};
use crate::catalog::{ModelEntry, Named, Readiness};
use crate::deployment::ControlKind;
use crate::extract::Params;
use crate::fault::{Fault, OipError};
use crate::sequences::Stateful;
use crate::state::ServerState;
use crate::versions::VersionPolicy;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::DType;
use serde_json::{Value, json};

/// The protocol's platform of a model: the serving program and the model's format.
const PLATFORM: &str = "lgp_onnx";

/// The platform of an ensemble, as in Triton.
const ENSEMBLE: &str = "ensemble";

/// The platform of a model or an ensemble.
pub(crate) fn platform(entry: &ModelEntry) -> &'static str {
    if entry.ensemble().is_some() { ENSEMBLE } else { PLATFORM }
}

/// Resolves the name in a path.
pub(crate) async fn named(state: &ServerState, params: &Params) -> Result<Named, Fault> {
    let version = params.find("version").map(parse_version).transpose()?;
    state.catalog().named(params.get("model"), version).await
}

/// The model in a path; for an alias, its first target.
pub(crate) async fn find(state: &ServerState, params: &Params) -> Result<ModelEntry, Fault> {
    Ok(named(state, params).await?.entry().clone())
}

/// Parses a version.
pub(crate) fn parse_version(text: &str) -> Result<u64, Fault> {
    text.parse().ok().filter(|&v| v > 0).ok_or_else(|| {
        Fault::bad_input(format!("model version '{text}' is not valid, expected an integer from 1"))
    })
}

/// `GET /v2/models/{m}[/versions/{v}]`.
pub(crate) async fn metadata(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, OipError> {
    let entry = find(&state, &params).await?;
    let versions: Vec<String> = match params.find("version") {
        Some(_) => vec![entry.version().to_string()],
        None => state.catalog().versions(entry.name()).await?.iter().map(u64::to_string).collect(),
    };
    Ok(Json(json!({
        "name": entry.name(),
        "versions": versions,
        "platform": platform(&entry),
        "inputs": tensors(entry.inputs()),
        "outputs": tensors(entry.outputs()),
    })))
}

fn tensors(specs: &[ValueSpec]) -> Vec<Value> {
    let tensor = |spec: &ValueSpec| {
        json!({
            "name": spec.name,
            "datatype": datatype::name(spec.ty.dtype),
            "shape": signature::wire_dims(spec.ty.shape.as_ref()),
        })
    };
    specs.iter().map(tensor).collect()
}

/// `GET /v2/models/{m}[/versions/{v}]/config`: Triton's model configuration with the current settings. If
/// `max_batch_size` is 0, the shapes include the batch.
pub(crate) async fn config(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, OipError> {
    let entry = find(&state, &params).await?;
    let settings = Settings::of(&entry, &state.catalog().deployment(entry.name()).await);
    let tensor = |spec: &ValueSpec| {
        json!({
            "name": spec.name,
            "data_type": datatype::config_name(spec.ty.dtype),
            "dims": settings.dims(spec),
        })
    };
    let policy = match state.catalog().version_policy(entry.name()).await {
        VersionPolicy::All => json!({ "all": {} }),
        VersionPolicy::Latest(count) => json!({ "latest": { "num_versions": count } }),
        VersionPolicy::Listed(versions) => json!({ "specific": { "versions": versions } }),
    };
    let mut config = json!({
        "name": entry.name(),
        "platform": platform(&entry),
        "backend": "",
        "version_policy": policy,
        "max_batch_size": settings.max_batch_size,
        "input": entry.inputs().iter().map(tensor).collect::<Vec<_>>(),
        "output": entry.outputs().iter().map(tensor).collect::<Vec<_>>(),
    });
    // Only one of the two is set: for a model that keeps sequences, the worker decides on batches.
    if let Some(stateful) = entry.stateful() {
        config["sequence_batching"] = sequence_batching(stateful);
    } else if let Some(batching) = &settings.batching {
        config["dynamic_batching"] = json!({
            "preferred_batch_size": batching.preferred,
            "max_queue_delay_microseconds": batching.delay_us,
        });
    }
    if !settings.warm_up.is_empty() {
        config["model_warmup"] = settings.warm_up.iter().map(warm_up).collect();
    }
    if settings.is_cached {
        config["response_cache"] = json!({ "enable": true });
    }
    Ok(Json(config))
}

fn warm_up(run: &WarmUpRun) -> Value {
    let input = |WarmUpInput { name, dtype, dims }: &WarmUpInput| {
        let data_type = datatype::config_name(*dtype);
        (name.clone(), json!({ "data_type": data_type, "dims": dims, "zero_data": true }))
    };
    let inputs: serde_json::Map<String, Value> = run.inputs.iter().map(input).collect();
    json!({ "name": "", "batch_size": run.batch_size, "inputs": inputs, "count": 1 })
}

/// The model's settings of sequences.
fn sequence_batching(stateful: &Stateful) -> Value {
    let control = |(name, kind, dtype): (&str, ControlKind, DType)| {
        let mut control = json!({ "kind": control_name(kind) });
        match (kind, dtype) {
            (ControlKind::CorrelationId, dtype) => {
                control["data_type"] = json!(datatype::config_name(dtype));
            }
            (_, DType::F32) => control["fp32_false_true"] = json!([0.0, 1.0]),
            (_, DType::Bool) => control["bool_false_true"] = json!([false, true]),
            _ => control["int32_false_true"] = json!([0, 1]),
        }
        json!({ "name": name, "control": [control] })
    };
    let state = |(spec, output): (&ValueSpec, &str)| {
        json!({
            "input_name": spec.name,
            "output_name": output,
            "data_type": datatype::config_name(spec.ty.dtype),
            "dims": signature::wire_dims(spec.ty.shape.as_ref()),
        })
    };
    json!({
        "max_sequence_idle_microseconds": stateful.idle_us(),
        "control_input": stateful.controls().map(control).collect::<Vec<_>>(),
        "state": stateful.states().map(state).collect::<Vec<_>>(),
    })
}

/// The name of a control in Triton's model configuration.
pub(crate) fn control_name(kind: ControlKind) -> &'static str {
    match kind {
        ControlKind::Start => "CONTROL_SEQUENCE_START",
        ControlKind::End => "CONTROL_SEQUENCE_END",
        ControlKind::Ready => "CONTROL_SEQUENCE_READY",
        ControlKind::CorrelationId => "CONTROL_SEQUENCE_CORRID",
    }
}

/// `GET /v2/models/{m}[/versions/{v}]/ready`: 503 until a worker has loaded the model.
pub(crate) async fn ready(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Response, OipError> {
    let entry = find(&state, &params).await?;
    let ready = state.catalog().readiness(&entry) == Readiness::Ready;
    let body = Json(json!({ "name": entry.name(), "ready": ready }));
    Ok(if ready {
        body.into_response()
    } else {
        (axum::http::StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    })
}
