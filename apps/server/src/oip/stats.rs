//! Triton's statistics extension: counts and cumulative times per model version. The
//! response cache is counted in `/metrics`; statistics of batches are left out.

use super::models;
use crate::access::Caller;
use crate::extract::Params;
use crate::fault::OipError;
use crate::metrics::ModelReading;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// `GET /v2/models/stats`.
pub(crate) async fn all(
    State(state): State<ServerState>,
    caller: Caller,
) -> Result<Json<Value>, OipError> {
    let mut stats = Vec::new();
    let entries = state.catalog().list().await?;
    for entry in entries.iter().filter(|entry| caller.may_use(entry.name())) {
        let reading = state.metrics().model(entry.name(), entry.version()).read();
        stats.push(describe(entry.name(), entry.version(), &reading));
    }
    Ok(Json(json!({ "model_stats": stats })))
}

/// `GET /v2/models/{m}[/versions/{v}]/stats`.
pub(crate) async fn model(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, OipError> {
    let entry = models::find(&state, &params).await?;
    let reading = state.metrics().model(entry.name(), entry.version()).read();
    Ok(Json(json!({ "model_stats": [describe(entry.name(), entry.version(), &reading)] })))
}

fn describe(name: &str, version: u64, r: &ModelReading) -> Value {
    let ok = |ns: u64| json!({ "count": r.success, "ns": ns });
    json!({
        "name": name,
        "version": version.to_string(),
        "last_inference": r.last_inference_ms,
        "inference_count": r.success,
        "execution_count": r.executions,
        "inference_stats": {
            "success": ok(r.request_ns),
            "fail": { "count": r.failure.iter().sum::<u64>(), "ns": r.failure_ns },
            "queue": ok(r.queue_ns),
            "compute_input": ok(r.compute_input_ns),
            "compute_infer": ok(r.compute_infer_ns),
            "compute_output": ok(r.compute_output_ns),
        },
        "batch_stats": [],
    })
}
