//! Triton's shared memory extensions, for regions of system memory. There are no CUDA regions;
//! unregistering all of them succeeds, because clients do so at the start.

use crate::access::Caller;
use crate::access::KeyRole::Submit;
use crate::extract::{Params, Whole};
use crate::fault::OipError;
use crate::peer::Peer;
use crate::route::Route;
use crate::shared_memory::{Place, of_this_machine};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};

/// Everything under `/v2/systemsharedmemory` and `/v2/cudasharedmemory`.
pub(super) fn routes() -> Vec<Route> {
    let system = |rest: &str| format!("/v2/systemsharedmemory{rest}");
    let cuda = |rest: &str| format!("/v2/cudasharedmemory{rest}");
    vec![
        Route::get(system("/status"), Submit, status, "The regions of the caller")
            .answers(200, "Regions"),
        Route::get(system("/region/{region}/status"), Submit, status, "A region of the caller")
            .answers(200, "Regions")
            .refuses(&[404]),
        Route::post(
            system("/region/{region}/register"),
            Submit,
            register,
            "Registers shared memory of this machine for inputs and outputs of the caller",
        )
        .takes("NewRegion")
        .answers(200, "Nothing")
        .refuses(&[409, 501]),
        Route::post(
            system("/region/{region}/unregister"),
            Submit,
            unregister,
            "Lets a region of the caller go",
        )
        .answers(200, "Nothing"),
        Route::post(system("/unregister"), Submit, unregister, "Lets the caller's regions go")
            .answers(200, "Nothing"),
        Route::get(cuda("/status"), Submit, cuda_status, "No regions: there are none of CUDA")
            .answers(200, "NoRegions"),
        Route::post(cuda("/unregister"), Submit, cuda_unregister, "Does nothing: there are none")
            .answers(200, "Nothing"),
    ]
}

#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(flatten)]
    place: Place,
}

/// `GET /v2/systemsharedmemory[/region/{r}]/status`.
async fn status(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Json<Vec<Listed>>, OipError> {
    let listed = state.regions().list(&caller, params.find("region"))?;
    Ok(Json(listed.into_iter().map(|(name, place)| Listed { name, place }).collect()))
}

/// `POST /v2/systemsharedmemory/region/{r}/register`.
async fn register(
    State(state): State<ServerState>,
    caller: Caller,
    peer: Peer,
    params: Params,
    body: Whole,
) -> Result<Json<Value>, OipError> {
    of_this_machine(peer.is_local())?;
    state.regions().register((&caller, state.access()), params.get("region"), body.json()?)?;
    Ok(Json(json!({})))
}

/// `POST /v2/systemsharedmemory[/region/{r}]/unregister`.
async fn unregister(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Json<Value> {
    state.regions().unregister(&caller, params.find("region"));
    Json(json!({}))
}

async fn cuda_status() -> Json<[Value; 0]> {
    Json([])
}

async fn cuda_unregister() -> Json<Value> {
    Json(json!({}))
}
