//! API keys: making, listing and taking back what lets programs in.

use crate::access::{Caller, KeyInfo, Made, NewKey};
use crate::error::Error;
use crate::extract::{Params, Whole};
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Value, json};

/// `POST keys {"role":R,"ttl_s":S,"models":[…],"rate_per_s":N,"concurrent_max":N,"note":TEXT}`: 201
/// with the key, which is never shown again. All but the role may be left out.
pub(crate) async fn create(
    State(state): State<ServerState>,
    caller: Caller,
    body: Whole,
) -> Result<(StatusCode, Extension<Made>, Json<Value>), ClusterError> {
    let new: NewKey = body.json()?;
    let (info, text) = change(&state, move |state| state.access().keys().create(new)).await?;
    tracing::info!(by = caller.id(), key = info.id, role = %info.role, "an API key was made");
    let made = Made::from(&info);
    let mut value = json!(info);
    value["key"] = json!(text);
    Ok((StatusCode::CREATED, Extension(made), Json(value)))
}

/// `GET keys`: a bare array, oldest first; those that have expired of late included.
pub(crate) async fn list(State(state): State<ServerState>) -> Json<Vec<KeyInfo>> {
    Json(state.access().keys().list())
}

/// `DELETE keys/{id}`: requests that are under way end, no further ones are let in.
pub(crate) async fn revoke(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let id = params.get("id").to_owned();
    let revoked = id.clone();
    change(&state, move |state| state.access().revoke(&revoked)).await?;
    tracing::info!(by = caller.id(), key = id, "an API key was revoked");
    Ok(Json(json!({ "id": id, "revoked": true })))
}

/// Works on the keys away from the threads that serve connections: it waits for the disk.
async fn change<T: Send + 'static>(
    state: &ServerState,
    work: impl FnOnce(&ServerState) -> Result<T, Error> + Send + 'static,
) -> Result<T, Fault> {
    let state = state.clone();
    let done = tokio::task::spawn_blocking(move || work(&state)).await;
    done.map_err(Fault::internal)?.map_err(|error| match error {
        Error::InvalidKey { what } => Fault::bad_input(what),
        Error::UnknownKey { .. } => {
            Fault::not_found("unknown_key", error.to_string()).hint("radeon-cluster keys ls")
        }
        Error::Cluster(error) => faults::cluster(error),
        other => Fault::internal(other),
    })
}
