//! The Open Inference Protocol v2 over gRPC, with the extensions that Triton's clients use.
//!
//! Decoding, errors and counters are those of the REST interface; only messages differ.

mod body;
mod config;
mod infer;
mod metadata;
pub mod proto;
mod repository;
mod request;
mod service;
mod shared_memory;
mod status;
mod weigh;

#[cfg(feature = "planted")]
pub(crate) use body::follow;
#[cfg(feature = "planted")]
pub(crate) use request::read;
pub(crate) use status::{CODE, is_path, respond, status_of};

use crate::access::KeyRole::{Admin, Infer, Submit};
use crate::access::{Gate, Right, Rights, authenticate};
use crate::call;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::guard;
use crate::state::ServerState;
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use proto::grpc_inference_service_server::{GrpcInferenceServiceServer, SERVICE_NAME};
use service::Service;

/// The calls of the service, and the right that each needs.
const CALLS: [(&str, Right); 17] = [
    ("ServerLive", Right::Anybody),
    ("ServerReady", Right::Anybody),
    ("ModelReady", Right::Role(Infer)),
    ("ServerMetadata", Right::Role(Infer)),
    ("ModelMetadata", Right::Role(Infer)),
    ("ModelInfer", Right::Role(Infer)),
    ("ModelStreamInfer", Right::Role(Infer)),
    ("ModelConfig", Right::Role(Infer)),
    ("ModelStatistics", Right::Role(Infer)),
    ("RepositoryIndex", Right::Role(Infer)),
    ("RepositoryModelLoad", Right::Role(Admin)),
    ("RepositoryModelUnload", Right::Role(Admin)),
    ("SystemSharedMemoryStatus", Right::Role(Submit)),
    ("SystemSharedMemoryRegister", Right::Role(Submit)),
    ("SystemSharedMemoryUnregister", Right::Role(Submit)),
    ("CudaSharedMemoryStatus", Right::Role(Submit)),
    ("CudaSharedMemoryUnregister", Right::Role(Submit)),
];

/// Largest message of a call without tensors, in bytes: names and a few parameters.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Largest message that a call takes, in bytes.
fn message_bytes_max(path: &str, config: &ServerConfig) -> usize {
    match ["/ModelInfer", "/ModelStreamInfer"].iter().any(|call| path.ends_with(call)) {
        true => config.binary_bytes_max,
        false => SMALL_BYTES_MAX.min(config.binary_bytes_max),
    }
}

/// The whole service, for [`serve_grpc`](crate::serve_grpc) or for the caller's own listener.
pub fn router(state: ServerState) -> Router {
    let service = GrpcInferenceServiceServer::new(Service::new(state.clone()))
        .max_encoding_message_size(usize::MAX);
    let path = |call: &str| format!("/{SERVICE_NAME}/{call}");
    let calls = CALLS.iter().fold(Router::new(), |router, (call, _)| {
        let path = path(call);
        let most = message_bytes_max(&path, state.config());
        router.route_service(&path, service.clone().max_decoding_message_size(most))
    });
    let rights = CALLS.map(|(call, right)| (Method::POST, path(call), right));
    let gate = Gate::new(state.clone(), Rights::of(rights));
    calls
        .fallback(unknown_call)
        .layer(axum::middleware::from_fn_with_state(state.clone(), body::bounded))
        .layer(axum::middleware::from_fn_with_state(gate, authenticate))
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::known_hosts_only))
        .layer(axum::middleware::from_fn_with_state(state, call::observed))
}

async fn unknown_call(request: Request) -> Response {
    let path = request.uri().path();
    respond(Fault::unsupported(format!("no call {path} is served here")))
}
