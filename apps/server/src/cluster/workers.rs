//! Routes that list workers, report their state, and ask them to leave.

use super::references::may_see;
use crate::access::Caller;
use crate::cluster::admin::Patience;
use crate::extract::{Params, Whole};
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lgp_distributed::{WorkerInfo, WorkerState};
use lgp_sdk::cluster::Error as Cause;
use serde_json::{Value, json};

/// `GET workers`: a bare array.
pub(crate) async fn list(
    State(state): State<ServerState>,
    caller: Caller,
) -> Json<Vec<WorkerInfo>> {
    let mut all = state.coordinator().workers();
    all.iter_mut().for_each(|worker| narrow(&state, &caller, worker));
    Json(all)
}

/// `GET workers/{id}`.
pub(crate) async fn show(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Json<WorkerInfo>, ClusterError> {
    let mut worker = find(&state, &params)?;
    narrow(&state, &caller, &mut worker);
    Ok(Json(worker))
}

/// Drops data about models that the caller may not use.
fn narrow(state: &ServerState, caller: &Caller, worker: &mut WorkerInfo) {
    if !caller.is_limited() {
        return;
    }
    let seen = |model: &str| {
        let (name, version) = model.rsplit_once('/').unwrap_or((model, ""));
        may_see(state, caller, (name, version.parse().unwrap_or(0)))
    };
    worker.models.retain(|model| seen(model));
    worker.breakers.retain(|model, _| seen(model));
    for device in &mut worker.devices {
        device.models.retain(|model| seen(model));
        device.service_ms.retain(|model, _| seen(model));
        device.model_bytes.retain(|model, _| seen(model));
        // The reason may name any model.
        device.taken_out = device.taken_out.take().map(|_| "runs on it did not stop".to_owned());
    }
}

/// `GET workers/{id}/metrics`: values that change while a worker runs.
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

/// `POST workers/{id}/shutdown`: 202; the worker finishes its tasks and leaves.
pub(crate) async fn shutdown(
    State(state): State<ServerState>,
    params: Params,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let id = params.get("id");
    let asked = state.coordinator().shutdown_worker(id);
    asked.map_err(|error| not_asked(&state, id, error))?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id, "state": "draining" }))))
}

/// `POST workers/{id}/drain {"timeout_s":60}`: 200 once the worker has left. `ended` lists the
/// tasks whose attempt exceeded the timeout and was ended.
pub(crate) async fn drain(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let (id, limit) = (params.get("id"), Patience::of(&body)?);
    let drained = state.coordinator().drain_worker(id, limit).await;
    let ended = drained.map_err(|error| not_asked(&state, id, error))?;
    Ok(Json(json!({ "id": id, "state": "left", "ended": ended })))
}

/// `POST workers/{id}/enable`: re-enables devices that were disabled because a run did not stop.
pub(crate) async fn enable(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let id = params.get("id");
    let enabled = state.coordinator().enable_worker(id).map_err(faults::cluster)?;
    Ok(Json(json!({ "id": id, "enabled": enabled })))
}

/// Why a worker was not asked to leave. A lost worker is still listed, so it is known.
fn not_asked(state: &ServerState, id: &str, error: Cause) -> Fault {
    let listed = state.coordinator().worker(id);
    if listed.is_ok_and(|worker| worker.state == WorkerState::Lost) {
        let message = format!("worker {id:?} is gone already: it was lost");
        return Fault::new(StatusCode::CONFLICT, "worker_gone", message)
            .hint("it stays listed for ten minutes; its tasks were given to others");
    }
    faults::cluster(error)
}

fn find(state: &ServerState, params: &Params) -> Result<WorkerInfo, ClusterError> {
    Ok(state.coordinator().worker(params.get("id")).map_err(faults::cluster)?)
}
