//! The Open Inference Protocol v2 over HTTP, with the extensions that Triton's clients use.
//!
//! ```text
//! curl localhost:8000/v2/models/digits
//! curl localhost:8000/v2/models/digits/infer -d '{"inputs":[{"name":"image",
//!   "shape":[1,1,8,8],"datatype":"FP32","data":[0,0,5,…]}]}'
//! ```

mod datatype;
mod health;
mod infer;
mod json_data;
mod models;
mod repository;
mod request;
mod response;
mod signature;
mod stats;

use crate::state::ServerState;
use axum::Router;
use axum::routing::{get, post};

pub(crate) use datatype::config_name as config_datatype;
pub(crate) use datatype::name as datatype_name;
pub(crate) use datatype::parse as parse_datatype;
pub(crate) use health::{EXTENSIONS, NAME};
pub(crate) use infer::{Answer, off_loop, serve};
pub(crate) use json_data::Flat;
pub(crate) use models::{PLATFORM, parse_version};
pub(crate) use repository::refuse_upload;
pub(crate) use request::{
    HEADER_LENGTH, InferRequest, Input, Output, Parameters, Raw, binary, check_rank,
    refuse_shared_memory,
};
pub(crate) use signature::{check as check_inputs, wire_dims};

/// Everything under `/v2`.
pub(crate) fn routes() -> Router<ServerState> {
    let mut router = Router::new()
        .route("/v2", get(health::server))
        .route("/v2/", get(health::server))
        .route("/v2/health/live", get(health::live))
        .route("/v2/health/ready", get(health::ready))
        .route("/v2/models/stats", get(stats::all))
        .route("/v2/repository/index", post(repository::index))
        .route("/v2/repository/models/{model}/load", post(repository::load))
        .route("/v2/repository/models/{model}/unload", post(repository::unload));
    for prefix in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(prefix, get(models::metadata))
            .route(&format!("{prefix}/ready"), get(models::ready))
            .route(&format!("{prefix}/config"), get(models::config))
            .route(&format!("{prefix}/stats"), get(stats::model))
            .route(&format!("{prefix}/infer"), post(infer::infer));
    }
    router
}
