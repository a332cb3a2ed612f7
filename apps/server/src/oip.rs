//! The Open Inference Protocol v2 over HTTP, with the extensions that Triton's clients use.
//!
//! ```text
//! curl localhost:8000/v2/models/digits
//! curl localhost:8000/v2/models/digits/infer -d '{"inputs":[{"name":"image",
//!   "shape":[1,1,8,8],"datatype":"FP32","data":[0,0,5,…]}]}'
//! ```

mod blobs;
mod classes;
mod datatype;
mod health;
mod infer;
mod json_data;
mod models;
mod off_loop;
mod packed;
mod parameters;
mod parts;
mod receive;
mod repository;
mod request;
mod response;
mod settings;
mod shared_memory;
mod signature;
mod stats;
mod task;

use crate::access::KeyRole::{Admin, Infer};
use crate::access::Right;
use crate::route::{Content, Route};

pub(crate) use blobs::{Blobs, Data, Inputs};
pub(crate) use classes::floats;
pub(crate) use datatype::config_name as config_datatype;
pub(crate) use datatype::name as datatype_name;
pub(crate) use datatype::parse as parse_datatype;
pub(crate) use health::{EXTENSIONS, NAME};
pub(crate) use infer::serve;
pub(crate) use json_data::Flat;
pub(crate) use models::{control_name, parse_version, platform};
pub(crate) use off_loop::{LARGE_BYTES, off_loop, weight};
pub(crate) use parameters::{Parameters, flag, number};
#[cfg(feature = "planted")]
pub(crate) use parts::{can_take_form, form_kind};
pub(crate) use repository::refuse_upload;
#[cfg(feature = "planted")]
pub(crate) use request::decode;
pub(crate) use request::{Form, Given, InferRequest, Input, Output, Raw, check_rank, slot};
pub(crate) use response::Answer;
pub(crate) use settings::{Settings, WarmUpInput, WarmUpRun};
pub(crate) use signature::{check as check_inputs, check_all, check_declared, wire_dims};
pub(crate) use task::run_in_background;

/// The description of the server's own path, with and without the final slash.
const SERVER: &str = "Name, version and extensions of the server";

/// Everything under `/v2`.
pub(crate) fn routes() -> Vec<Route> {
    let mut all = vec![
        Route::get("/v2", Infer, health::server, SERVER).answers(200, "ServerMetadata"),
        Route::get("/v2/", Infer, health::server, SERVER).answers(200, "ServerMetadata"),
        Route::get("/v2/health/live", Right::Anybody, health::live, "Whether the server lives")
            .answers(200, "Live"),
        Route::get(
            "/v2/health/ready",
            Right::Anybody,
            health::ready,
            "Whether an inference would find a worker",
        )
        .answers(200, "Ready")
        .answers(503, "Ready"),
        Route::get("/v2/models/stats", Infer, stats::all, "Counts and times of every model")
            .answers(200, "ModelStatistics"),
        Route::post(
            "/v2/repository/index",
            Infer,
            repository::index,
            "Every model and whether it can be used",
        )
        .takes("IndexQuery")
        .answers(200, "RepositoryIndex"),
        Route::post(
            "/v2/repository/models/{model}/load",
            Admin,
            repository::load,
            "Loads the newest version of a model",
        )
        .takes("RepositoryControl")
        .answers(200, "Nothing")
        .refuses(&[404, 501]),
        Route::post(
            "/v2/repository/models/{model}/unload",
            Admin,
            repository::unload,
            "Unloads a model; its files stay",
        )
        .takes("RepositoryControl")
        .answers(200, "Nothing")
        .refuses(&[404]),
    ];
    all.extend(shared_memory::routes());
    all.extend(of_model("/v2/models/{model}"));
    all.extend(of_model("/v2/models/{model}/versions/{version}"));
    all
}

/// Whether a path of Triton's clients is deliberately not built: settings of traces or logs, or regions of CUDA
/// memory.
pub(crate) fn is_left_out(path: &str) -> bool {
    let region = path.strip_prefix("/v2/cudasharedmemory/region/");
    path == "/v2/logging"
        || path.starts_with("/v2/") && path.ends_with("/trace/setting")
        || region.is_some_and(|rest| rest.ends_with("/register"))
}

/// The routes of a model or of one of its versions.
fn of_model(path: &str) -> [Route; 5] {
    let at = |rest: &str| format!("{path}{rest}");
    [
        Route::get(path, Infer, models::metadata, "Inputs and outputs of a model")
            .answers(200, "ModelMetadata")
            .refuses(&[400, 404]),
        Route::get(at("/ready"), Infer, models::ready, "Whether a model can be used")
            .answers(200, "ModelReady")
            .answers(503, "ModelReady")
            .refuses(&[400, 404]),
        Route::get(
            at("/config"),
            Infer,
            models::config,
            "The configuration of a model, as Triton words it",
        )
        .answers(200, "ModelConfig")
        .refuses(&[400, 404]),
        Route::get(at("/stats"), Infer, stats::model, "Counts and times of a model")
            .answers(200, "ModelStatistics")
            .refuses(&[400, 404]),
        Route::post(at("/infer"), Infer, infer::infer, "Runs a model once")
            .tensors()
            .takes_as(Content::Bytes("multipart/form-data"))
            .takes("InferRequest")
            .answers(200, "InferResponse")
            .answers_as(200, Content::Bytes("application/octet-stream"))
            .refuses(&[404, 500, 501]),
    ]
}
