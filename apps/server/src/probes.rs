//! Probes for kubelets and load balancers, which only read the status.

use crate::state::ServerState;
use axum::extract::State;
use axum::http::StatusCode;

/// The media type of the answers.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// `GET /healthz`: 200 as long as the server answers.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: 200 while an inference for a loaded model would find a worker, otherwise 503.
pub(crate) async fn ready(State(state): State<ServerState>) -> (StatusCode, &'static str) {
    if state.is_closing() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server is about to end\n");
    }
    match state.catalog().is_ready() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "no worker is ready\n"),
    }
}
