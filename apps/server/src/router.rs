//! All routes, and what answers where there is none.

use crate::access::authenticate;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::state::ServerState;
use crate::{cluster, drain, exposition, guard, oip};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// How long a browser may remember what a page of another origin may do.
const PREFLIGHT: Duration = Duration::from_secs(600);

/// The whole service, for [`serve`](crate::serve) or for a listener of one's own.
pub fn router(state: ServerState) -> Router {
    Router::new()
        .merge(oip::routes())
        .merge(cluster::routes())
        .route("/metrics", get(exposition::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(axum::middleware::from_fn_with_state(state.clone(), authenticate))
        .layer(axum::middleware::from_fn(drain::drained))
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::known_hosts_only))
        .layer(cors(state.config()))
        .with_state(state)
}

/// What browsers ask before a page of another origin may use the server.
fn cors(config: &ServerConfig) -> CorsLayer {
    let length = HeaderName::from_static(oip::HEADER_LENGTH);
    let origins = config.origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, length.clone()])
        .expose_headers([length, header::RETRY_AFTER, header::LINK])
        .max_age(PREFLIGHT)
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
