//! Liveness, readiness and metadata of the server.

use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

/// The server's name.
pub(crate) const NAME: &str = "legacy-gpu-ai-platform";

/// The supported extensions of the protocol.
pub(crate) const EXTENSIONS: [&str; 8] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "statistics",
    "system_shared_memory",
];

/// `GET /v2`.
pub(crate) async fn server() -> Json<Value> {
    Json(json!({
        "name": NAME,
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": EXTENSIONS,
    }))
}

/// `GET /v2/health/live`.
pub(crate) async fn live() -> Json<Value> {
    Json(json!({ "live": true }))
}

/// `GET /v2/health/ready`: whether an inference for a loaded model would find a worker.
pub(crate) async fn ready(State(state): State<ServerState>) -> (StatusCode, Json<Value>) {
    let ready = state.catalog().is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": ready })))
}
