//! All routes, and what answers where there is none.

use crate::fault::Fault;
use crate::state::ServerState;
use crate::{cluster, drain, exposition, guard, oip};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

/// The whole service, for [`serve`](crate::serve) or for a listener of one's own.
pub fn router(state: ServerState) -> Router {
    Router::new()
        .merge(oip::routes())
        .merge(cluster::routes())
        .route("/metrics", get(exposition::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(axum::middleware::from_fn(drain::drained))
        .layer(axum::middleware::from_fn(guard::local_only))
        .with_state(state)
}

async fn unknown_path(request: Request) -> Response {
    let path = request.uri().path();
    Fault::not_found("unknown_path", format!("nothing is served at {path}")).for_path(path)
}

async fn wrong_verb(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("{} is not offered at {path}", request.method());
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_verb", message).for_path(path)
}
