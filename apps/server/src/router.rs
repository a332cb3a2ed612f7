//! All routes, and the fallbacks for unknown paths.

use crate::access::KeyRole::Submit;
use crate::access::{Gate, Right, Rights, authenticate};
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::route::{Content, Route};
use crate::state::ServerState;
use crate::{
    call, cluster, dashboard, docs, drain, exposition, extract, guard, leader, oip, openapi, place,
    probes,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// How long a browser may cache a CORS preflight.
const PREFLIGHT: Duration = Duration::from_secs(600);

static DESCRIPTION: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(openapi::document(&routes()).to_string()));

/// `GET /openapi.json`.
async fn description() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION.clone()).into_response()
}

/// Every route, with the right that it needs and its API description.
fn routes() -> Vec<Route> {
    let mut all = oip::routes();
    all.extend(cluster::routes());
    all.extend(docs::routes());
    all.extend(dashboard::routes());
    all.extend([
        Route::get("/metrics", Submit, exposition::metrics, "Metrics, as Prometheus reads them")
            .answers_as(200, Content::Text(exposition::FORMAT, "Metrics"))
            .answers_as(200, Content::Text(exposition::OPENMETRICS, "Metrics")),
        Route::get("/openapi.json", Right::Anybody, description, "This description")
            .answers(200, "Description"),
        Route::get("/healthz", Right::Anybody, probes::live, "Whether the server lives")
            .answers_as(200, Content::Text(probes::TEXT, "Text")),
        Route::get("/readyz", Right::Anybody, probes::ready, "Whether the server can do its work")
            .answers_as(200, Content::Text(probes::TEXT, "Text"))
            .answers_as(503, Content::Text(probes::TEXT, "Text")),
    ]);
    all
}

/// The whole service, for [`serve`](crate::serve) or for the caller's own listener.
pub fn router(state: ServerState) -> Router {
    let routes = routes();
    let of = |route: &Route| (route.method.clone(), route.path.clone(), route.right);
    let gate = Gate::new(state.clone(), Rights::of(routes.iter().map(of)));
    routes
        .into_iter()
        .fold(Router::new(), |router, route| route.serve(router))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(axum::middleware::from_fn_with_state(state.clone(), leader::only))
        .layer(axum::middleware::from_fn_with_state(gate, authenticate))
        .layer(axum::middleware::from_fn(drain::drained))
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::known_hosts_only))
        .layer(cors(state.config()))
        .layer(axum::middleware::from_fn_with_state(state.clone(), call::observed))
        .with_state(state)
}

/// The CORS layer for pages of the configured origins.
fn cors(config: &ServerConfig) -> CorsLayer {
    let length = HeaderName::from_static(extract::HEADER_LENGTH);
    let last_event = HeaderName::from_static(cluster::LAST_EVENT_ID);
    let [worker, device, times] =
        [place::WORKER, place::DEVICE, place::TIMES].map(HeaderName::from_static);
    let origins = config.origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, length.clone(), last_event])
        .expose_headers([length, header::RETRY_AFTER, header::LINK, worker, device, times])
        .max_age(PREFLIGHT)
}

async fn unknown_path(request: Request) -> Response {
    let path = request.uri().path();
    if oip::is_left_out(path) {
        return Fault::unsupported(format!("{path} is not offered")).for_path(path);
    }
    let message = format!("nothing is served at {path}");
    Fault::not_found("unknown_path", message).hint("GET /docs has what is served").for_path(path)
}

async fn wrong_verb(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("{} is not offered at {path}", request.method());
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_verb", message)
        .hint("GET /docs has what is served")
        .for_path(path)
}
