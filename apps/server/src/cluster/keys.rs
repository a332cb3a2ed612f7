//! Routes that make, list and revoke API keys.

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
/// with the key, which is never shown again. Only the role is required.
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

/// `GET keys`: a bare array, oldest first, including recently expired keys.
pub(crate) async fn list(State(state): State<ServerState>) -> Json<Vec<KeyInfo>> {
    Json(state.access().keys().list())
}

/// `DELETE keys/{id}`: running requests finish, and new ones are refused.
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

/// Changes keys off the threads that serve connections, because it blocks on the disk.
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
