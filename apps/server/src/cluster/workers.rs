//! Workers: who they are, what they do, and asking one to leave.

use crate::extract::Params;
use crate::fault::ClusterError;
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lgp_sdk::WorkerInfo;
use serde_json::{Value, json};

/// `GET workers`: a bare array.
pub(crate) async fn list(State(state): State<ServerState>) -> Json<Vec<WorkerInfo>> {
    Json(state.coordinator().workers())
}

/// `GET workers/{id}`.
pub(crate) async fn show(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<WorkerInfo>, ClusterError> {
    Ok(Json(find(&state, &params)?))
}

/// `GET workers/{id}/metrics`: what changes while a worker works.
pub(crate) async fn metrics(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let worker = find(&state, &params)?;
    Ok(Json(json!({
        "id": worker.id,
        "state": worker.state,
        "slots": worker.slots,
        "running": worker.running,
        "queued": worker.queued,
        "completed": worker.completed,
        "load": worker.load,
        "vram_used_bytes": worker.vram_used_bytes,
        "vram_total_bytes": worker.vram_total_bytes,
        "last_seen_ms": worker.last_seen_ms,
    })))
}

/// `POST workers/{id}/shutdown`: 202, the worker finishes what it has and leaves.
pub(crate) async fn shutdown(
    State(state): State<ServerState>,
    params: Params,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let id = params.get("id");
    state.coordinator().shutdown_worker(id).map_err(faults::cluster)?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id, "state": "draining" }))))
}

fn find(state: &ServerState, params: &Params) -> Result<WorkerInfo, ClusterError> {
    Ok(state.coordinator().worker(params.get("id")).map_err(faults::cluster)?)
}
