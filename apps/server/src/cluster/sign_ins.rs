//! Signing in with a browser, and who one is.

use crate::access::{Caller, bearer};
use crate::extract::Whole;
use crate::fault::{ClusterError, Fault};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// `POST sign-ins`: 201 with a code, to be exchanged once within two minutes.
pub(crate) async fn link(
    State(state): State<ServerState>,
    caller: Caller,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let made = state.access().sign_ins().link(caller.id()).map_err(Fault::internal)?;
    let (code, expires_s) = made.ok_or_else(|| {
        Fault::unavailable("busy", "too many links wait to be opened")
            .hint("each works for two minutes: try again then")
    })?;
    Ok((StatusCode::CREATED, Json(json!({ "code": code, "expires_s": expires_s }))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    code: String,
}

/// `POST session {"code":C}`: 201 with a key that is good for half a day, or until the server restarts.
pub(crate) async fn begin(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Exchange { code } = body.json()?;
    let exchanged = state.access().sign_ins().exchange(&code).map_err(Fault::internal)?;
    let (key, expires_s) = exchanged.ok_or_else(|| {
        Fault::new(StatusCode::UNAUTHORIZED, "unauthorized", "the link was used before, or is over")
            .hint("radeon-cluster dashboard makes another")
    })?;
    Ok((StatusCode::CREATED, Json(json!({ "key": key, "expires_s": expires_s }))))
}

/// `GET session`: who the caller is, and what it may do.
pub(crate) async fn show(caller: Caller) -> Json<Value> {
    Json(json!({ "id": caller.id(), "role": caller.role(), "models": caller.models() }))
}

/// `DELETE session`: the key that a link was exchanged for is good no longer; others stay.
pub(crate) async fn end(State(state): State<ServerState>, headers: HeaderMap) -> Json<Value> {
    let ended = bearer(&headers).is_ok_and(|key| key.is_some_and(|key| state.access().end(key)));
    Json(json!({ "ended": ended }))
}
