//! The Open Inference Protocol v2 over gRPC, with the extensions that Triton's clients use.
//!
//! Reads, errors and counts are those of the REST interface; only the form of messages differs.

mod body;
mod config;
mod infer;
mod metadata;
pub mod proto;
mod repository;
mod request;
mod service;
mod status;

pub(crate) use status::respond;

use crate::access::authenticate;
use crate::fault::Fault;
use crate::guard;
use crate::state::ServerState;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use proto::grpc_inference_service_server::{GrpcInferenceServiceServer, SERVICE_NAME};
use service::Service;

/// The service's calls, one by one: what may be called is asked of each by its name.
const CALLS: [&str; 12] = [
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelStreamInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
];

/// Whether a path is one of this protocol's.
pub(crate) fn is_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| rest.starts_with("inference."))
}

/// The whole service, for [`serve_grpc`](crate::serve_grpc) or for a listener of one's own.
pub fn router(state: ServerState) -> Router {
    let most = state.config().binary_bytes_max;
    let service = GrpcInferenceServiceServer::new(Service::new(state.clone()))
        .max_decoding_message_size(most)
        .max_encoding_message_size(usize::MAX);
    let calls = CALLS.iter().fold(Router::new(), |router, call| {
        router.route_service(&format!("/{SERVICE_NAME}/{call}"), service.clone())
    });
    calls
        .fallback(unknown_call)
        .layer(axum::middleware::from_fn_with_state(state.clone(), body::bounded))
        .layer(axum::middleware::from_fn_with_state(state.clone(), authenticate))
        .layer(axum::middleware::from_fn_with_state(state, guard::known_hosts_only))
}

async fn unknown_call(request: Request) -> Response {
    let path = request.uri().path();
    respond(Fault::unsupported(format!("no call {path} is served here")))
}
