//! Routes of the coordinator itself: state, totals, settings, scaling, restart and shutdown.

use super::leave_out;
use crate::access::Caller;
use crate::driver::Driver;
use crate::extract::Whole;
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lgp_distributed::{Stats, WorkerInfo, WorkerState, balancing_strategies};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// `POST coordinator/start`: only reports the state, since the coordinator already runs.
pub(crate) async fn start(State(state): State<ServerState>) -> Json<Value> {
    let coordinator = state.coordinator();
    let stats = coordinator.stats();
    let control = coordinator.engine().map(|(engine, trouble)| {
        json!({
            "engine": engine,
            "trouble": trouble,
            "leads": coordinator.leads(),
            "number": coordinator.epoch(),
            "coordinators": coordinator.peers(),
        })
    });
    Json(json!({
        "control": control,
        "state": "running",
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "quic": coordinator.quic_addr().to_string(),
        "uptime_s": stats.uptime_s,
        "workers": stats.workers,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    #[serde(default)]
    now: bool,
}

/// `POST coordinator/stop {"now":bool}`: 202, then queued tasks are finished, or dropped with
/// `now`. `given_up` counts the tasks that will not finish, as far as known now.
pub(crate) async fn stop(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Stop { now } = body.json()?;
    let driver = driver(&state)?;
    // Counted before the stop, because the coordinator may be gone a moment later.
    let given_up = if now || nobody_left(&state, driver) { unfinished(&state) } else { 0 };
    driver.stop(now);
    let answer = json!({ "state": "stopping", "now": now, "given_up": given_up });
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Whether no worker is ready to run queued tasks, and none will start.
fn nobody_left(state: &ServerState, driver: &dyn Driver) -> bool {
    let is_ready = |worker: &WorkerInfo| worker.state == WorkerState::Ready;
    driver.workers() == 0 && !state.coordinator().workers().iter().any(is_ready)
}

/// Tasks that end with the coordinator. Durable tasks stay in its journal for the next one.
fn unfinished(state: &ServerState) -> usize {
    state.coordinator().fleeting()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scale {
    workers: usize,
}

/// `POST scale {"workers":N}`: 202 once workers were started or asked to leave.
pub(crate) async fn scale(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Scale { workers } = body.json()?;
    let before = driver(&state)?.scale(workers).await.map_err(|e| faults::driver(&e))?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "workers": workers, "before": before }))))
}

/// `POST restart {"timeout_s":60}`: 200 once every local worker was replaced by a new one. `ended`
/// lists the tasks whose attempt exceeded a worker's time to finish.
pub(crate) async fn restart(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let limit = Patience::of(&body)?;
    let done = driver(&state)?.restart(limit).await.map_err(|e| faults::driver(&e))?;
    Ok(Json(json!({ "restarted": done.workers, "ended": done.ended })))
}

/// How long an order to stop a worker or a model waits for running tasks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patience {
    #[serde(default = "Patience::default_s")]
    timeout_s: u64,
}

impl Patience {
    /// For longer waits, the client should call again.
    const MAX_S: u64 = 24 * 3600;

    fn default_s() -> u64 {
        60
    }

    /// The timeout in a request.
    pub(crate) fn of(body: &Whole) -> Result<Duration, Fault> {
        let Self { timeout_s } = body.json()?;
        if timeout_s > Self::MAX_S {
            let most = Self::MAX_S;
            let message = format!("timeout_s is {timeout_s}, expected 0 to {most} seconds");
            return Err(Fault::bad_input(message));
        }
        Ok(Duration::from_secs(timeout_s))
    }
}

/// `GET stats`.
pub(crate) async fn stats(State(state): State<ServerState>, caller: Caller) -> Json<Stats> {
    let mut stats = state.coordinator().stats();
    leave_out(&state, &caller, &mut stats);
    Json(stats)
}

/// `GET stats/history`: columns of equal length, oldest first.
pub(crate) async fn history(State(state): State<ServerState>) -> Json<Value> {
    Json(state.history().columns())
}

/// `GET health`: 200 while an inference would find a worker, 503 otherwise.
pub(crate) async fn health(State(state): State<ServerState>) -> (StatusCode, Json<Value>) {
    let ready = state.catalog().is_ready();
    let workers = state.coordinator().stats().workers;
    let (status, word) = match (ready, workers.lost) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        (true, 0) => (StatusCode::OK, "ok"),
        (true, _) => (StatusCode::OK, "degraded"),
    };
    (status, Json(json!({ "status": word, "workers": workers })))
}

/// `GET config`: the effective settings.
pub(crate) async fn config(State(state): State<ServerState>) -> Json<Value> {
    let coordinator = state.coordinator();
    Json(json!({
        "server": state.config(),
        "coordinator": coordinator.config(),
        "balancing": balancing(&state),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Balancing {
    strategy: String,
}

/// `PUT config/balancing {"strategy":NAME}`.
pub(crate) async fn set_balancing(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<Json<Value>, ClusterError> {
    let Balancing { strategy } = body.json()?;
    state.coordinator().set_balancing(&strategy).map_err(faults::cluster)?;
    Ok(Json(balancing(&state)))
}

fn balancing(state: &ServerState) -> Value {
    json!({ "strategy": state.coordinator().balancing(), "known": balancing_strategies() })
}

fn driver(state: &ServerState) -> Result<&dyn Driver, Fault> {
    state.driver().ok_or_else(|| {
        Fault::unsupported("this server does not own its processes")
            .hint("scale and stop it from where it was started")
    })
}
