//! Routes for aliases: names that inference requests may use instead of a model's.

use crate::access::Caller;
use crate::aliases::Alias;
use crate::extract::{Params, Whole};
use crate::fault::ClusterError;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET aliases`: a bare array, by name. A key limited to models sees only the aliases that it may use, without
/// shadows of other models.
pub(crate) async fn list(State(state): State<ServerState>, caller: Caller) -> Json<Value> {
    let mut all = state.catalog().aliases().list();
    all.retain(|(name, _)| caller.may_use(name));
    let seen = |(name, alias): &(String, Arc<Alias>)| {
        let mut alias = Alias::clone(alias);
        alias.shadow = alias.shadow.filter(|shadow| caller.may_use(&shadow.model));
        describe(name, &alias)
    };
    Json(all.iter().map(seen).collect())
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

/// `DELETE aliases/{alias}`: removes the alias; its models stay.
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
