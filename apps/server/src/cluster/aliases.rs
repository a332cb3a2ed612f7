//! Aliases: names that requests for inference may use instead of a model's.

use crate::aliases::Alias;
use crate::extract::{Params, Whole};
use crate::fault::ClusterError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// `GET aliases`: a bare array, by name.
pub(crate) async fn list(State(state): State<ServerState>) -> Json<Value> {
    let all = state.catalog().aliases().list();
    Json(all.iter().map(|(name, alias)| describe(name, alias)).collect())
}

/// `PUT aliases/{alias} {"targets":[{"model","version","weight"}],"shadow":{"model","version","percent"}}`: makes or replaces it.
pub(crate) async fn set(
    State(state): State<ServerState>,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let name = params.get("alias");
    let alias: Alias = body.json()?;
    state.catalog().set_alias(name, alias.clone()).await?;
    Ok(Json(describe(name, &alias)))
}

/// `DELETE aliases/{alias}`: its models stay.
pub(crate) async fn remove(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let name = params.get("alias");
    state.catalog().remove_alias(name).await?;
    Ok(Json(json!({ "name": name, "removed": true })))
}

fn describe(name: &str, alias: &Alias) -> Value {
    json!({ "name": name, "targets": alias.targets, "shadow": alias.shadow })
}
