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
mod waiting;
mod workers;

use crate::state::ServerState;
use axum::Router;
use axum::routing::{delete, get, post, put};

/// Everything under `/api/v1/cluster`.
pub(crate) fn routes() -> Router<ServerState> {
    // Nested routes would not see the path that errors are written for.
    let at = |path: &str| format!("/api/v1/cluster{path}");
    Router::new()
        .route(&at("/coordinator/start"), post(admin::start))
        .route(&at("/coordinator/stop"), post(admin::stop))
        .route(&at("/journal"), get(journal::show))
        .route(&at("/journal/backup"), post(journal::back_up))
        .route(&at("/journal/compact"), post(journal::compact))
        .route(&at("/restart"), post(admin::restart))
        .route(&at("/scale"), post(admin::scale))
        .route(&at("/stats"), get(admin::stats))
        .route(&at("/events"), get(events::listen))
        .route(&at("/health"), get(admin::health))
        .route(&at("/config"), get(admin::config))
        .route(&at("/config/balancing"), put(admin::set_balancing))
        .route(&at("/workers"), get(workers::list))
        .route(&at("/workers/{id}"), get(workers::show))
        .route(&at("/workers/{id}/metrics"), get(workers::metrics))
        .route(&at("/workers/{id}/shutdown"), post(workers::shutdown))
        .route(&at("/workers/{id}/drain"), post(workers::drain))
        .route(&at("/workers/{id}/enable"), post(workers::enable))
        .route(&at("/tasks"), get(listing::list).post(tasks::submit))
        .route(&at("/tasks/batch"), post(tasks::submit_batch))
        .route(&at("/tasks/{id}"), get(tasks::show).delete(tasks::cancel))
        .route(&at("/tasks/{id}/result"), delete(tasks::let_go))
        .route(&at("/tasks/{id}/why"), get(tasks::why))
        .route(&at("/keys"), get(keys::list).post(keys::create))
        .route(&at("/keys/{id}"), delete(keys::revoke))
        .route(&at("/tokens"), get(tokens::list).post(tokens::create))
        .route(&at("/tokens/{id}"), delete(tokens::revoke))
        .route(&at("/revocations"), get(tokens::revoked_members).post(tokens::revoke_member))
        .route(&at("/models"), get(models::list))
        .route(&at("/models/{model}"), get(models::show).post(models::add).delete(models::remove))
        .route(&at("/models/{model}/load"), post(models::load))
        .route(&at("/models/{model}/unload"), post(models::unload))
        .route(&at("/models/{model}/deployment"), put(models::deploy))
}
