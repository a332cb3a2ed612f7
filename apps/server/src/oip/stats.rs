//! Triton's statistics extension: counts and cumulative times per model version.

use super::models;
use crate::access::Caller;
use crate::extract::Params;
use crate::fault::OipError;
use crate::metrics::{BatchReading, ModelReading};
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
    let of = |count: u64, ns: u64| json!({ "count": count, "ns": ns });
    let batch = |(rows, batch): &(u64, BatchReading)| {
        json!({
            "batch_size": rows,
            "compute_input": of(batch.runs, batch.compute_input_ns),
            "compute_infer": of(batch.runs, batch.compute_infer_ns),
            "compute_output": of(batch.runs, batch.compute_output_ns),
        })
    };
    json!({
        "name": name,
        "version": version.to_string(),
        "last_inference": r.last_inference_ms,
        "inference_count": r.inferences,
        "execution_count": r.executions,
        "inference_stats": {
            "success": of(r.success, r.request_ns),
            "fail": of(r.failure.iter().sum(), r.failure_ns),
            "queue": of(r.success, r.queue_ns),
            "compute_input": of(r.computed, r.compute_input_ns),
            "compute_infer": of(r.computed, r.compute_infer_ns),
            "compute_output": of(r.computed, r.compute_output_ns),
            "cache_hit": of(r.cache_hits, r.cache_hit_ns),
            "cache_miss": of(r.cache_misses, r.cache_miss_ns),
        },
        "batch_stats": r.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}
