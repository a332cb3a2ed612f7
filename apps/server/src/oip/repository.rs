//! Triton's repository extension: listing, loading and unloading models.

use crate::access::Caller;
use crate::catalog::Indexed;
use crate::extract::{Params, Whole};
use crate::fault::{Fault, OipError};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct IndexQuery {
    #[serde(default)]
    ready: bool,
}

/// `POST /v2/repository/index`.
pub(crate) async fn index(
    State(state): State<ServerState>,
    caller: Caller,
    body: Whole,
) -> Result<Json<Value>, OipError> {
    let query: IndexQuery = body.json()?;
    let mut models = Vec::new();
    for Indexed { name, version, readiness } in state.catalog().index().await? {
        if !caller.may_use(&name) || query.ready && !readiness.is_ready() {
            continue;
        }
        models.push(json!({
            "name": name,
            "version": version.to_string(),
            "state": readiness.name(),
            "reason": readiness.reason(),
        }));
    }
    Ok(Json(Value::Array(models)))
}

#[derive(Deserialize)]
struct Control {
    parameters: Option<Map<String, Value>>,
}

/// Refuses a load request that contains the model itself.
pub(crate) fn refuse_upload<'a>(
    parameters: impl IntoIterator<Item = &'a String>,
) -> Result<(), Fault> {
    let mut names = parameters.into_iter();
    match names.find(|name| *name == "config" || name.starts_with("file:")) {
        Some(name) => {
            Err(Fault::unsupported(format!("parameter {name}: models are added by upload")))
        }
        None => Ok(()),
    }
}

/// `POST /v2/repository/models/{m}/load`.
pub(crate) async fn load(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, OipError> {
    let control: Control = body.json()?;
    let parameters = control.parameters.unwrap_or_default();
    refuse_upload(parameters.keys())?;
    state.catalog().load(params.get("model"), None).await?;
    Ok(Json(json!({})))
}

/// `POST /v2/repository/models/{m}/unload`.
pub(crate) async fn unload(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, OipError> {
    let _: Control = body.json()?;
    state.catalog().unload(params.get("model"), None).await?;
    Ok(Json(json!({})))
}
