//! The cluster API: workers, tasks, models, join tokens and settings.
//!
//! ```text
//! KEY="Authorization: Bearer $(cat DATA/local.key)"
//! curl -H "$KEY" localhost:8000/api/v1/cluster/workers
//! curl -H "$KEY" localhost:8000/api/v1/cluster/tasks -d '{"model":"digits","inputs":[{"name":"image",
//!   "shape":[1,1,8,8],"datatype":"FP32","data":[0,0,5,…]}],"priority":"high"}'
//! # With tensors as bytes behind the JSON, whose inputs have "parameters":{"binary_data_size":N}
//! curl -H "$KEY" localhost:8000/api/v1/cluster/tasks -H "Inference-Header-Content-Length: $(wc -c < json)" \
//!   --data-binary @<(cat json tensors)
//! curl -H "$KEY" -X POST localhost:8000/api/v1/cluster/models/mine --data-binary @mine.onnx
//! ```

mod admin;
mod events;
mod journal;
mod keys;
mod listing;
mod models;
mod tasks;
mod tokens;
mod upload;
mod workers;

use crate::state::ServerState;
use axum::Router;
use axum::routing::{delete, get, post, put};

/// Everything under `/api/v1/cluster`.
pub(crate) fn routes() -> Router<ServerState> {
    let api = Router::new()
        .route("/coordinator/start", post(admin::start))
        .route("/coordinator/stop", post(admin::stop))
        .route("/journal", get(journal::show))
        .route("/journal/backup", post(journal::back_up))
        .route("/journal/compact", post(journal::compact))
        .route("/restart", post(admin::restart))
        .route("/scale", post(admin::scale))
        .route("/stats", get(admin::stats))
        .route("/events", get(events::listen))
        .route("/health", get(admin::health))
        .route("/config", get(admin::config))
        .route("/config/balancing", put(admin::set_balancing))
        .route("/workers", get(workers::list))
        .route("/workers/{id}", get(workers::show))
        .route("/workers/{id}/metrics", get(workers::metrics))
        .route("/workers/{id}/shutdown", post(workers::shutdown))
        .route("/workers/{id}/drain", post(workers::drain))
        .route("/workers/{id}/enable", post(workers::enable))
        .route("/tasks", get(listing::list).post(tasks::submit))
        .route("/tasks/batch", post(tasks::submit_batch))
        .route("/tasks/{id}", get(tasks::show).delete(tasks::cancel))
        .route("/tasks/{id}/result", delete(tasks::let_go))
        .route("/tasks/{id}/why", get(tasks::why))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/{id}", delete(keys::revoke))
        .route("/tokens", get(tokens::list).post(tokens::create))
        .route("/tokens/{id}", delete(tokens::revoke))
        .route("/revocations", get(tokens::revoked_members).post(tokens::revoke_member))
        .route("/models", get(models::list))
        .route("/models/{model}", get(models::show).post(models::add).delete(models::remove))
        .route("/models/{model}/load", post(models::load))
        .route("/models/{model}/unload", post(models::unload))
        .route("/models/{model}/deployment", put(models::deploy));
    Router::new().nest("/api/v1/cluster", api)
}
