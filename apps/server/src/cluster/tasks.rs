//! Tasks: submitting, watching and cancelling them.

use crate::extract::{Params, Whole};
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::oip::{self, Flat, Input, Raw};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lgp_sdk::{
    NamedTensor, Priority, TaskError, TaskId, TaskRecord, TaskSpec, TaskState, WorkerId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Longest idempotency key in bytes.
const KEY_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task<'a> {
    model: String,
    #[serde(borrow)]
    inputs: Vec<Input<'a>>,
    durable: Option<bool>,
    idempotency_key: Option<String>,
    priority: Option<String>,
    deadline_ms: Option<u64>,
    depends_on: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    tasks: Vec<Task<'a>>,
}

/// `POST tasks`: 202 with id and state.
pub(crate) async fn submit(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let task: Task<'_> = parse(&body)?;
    let spec = task.spec(&state).await?;
    let id = state.coordinator().submit(spec).map_err(faults::cluster)?;
    Ok((StatusCode::ACCEPTED, Json(accepted(&state, id))))
}

/// `POST tasks/batch`: 202 with the tasks in the order in which they were given. All of them are
/// checked before the first is submitted.
pub(crate) async fn submit_batch(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let batch: Batch<'_> = parse(&body)?;
    let most = state.config().batch_tasks_max;
    if batch.tasks.is_empty() || batch.tasks.len() > most {
        return Err(Fault::bad_input(format!(
            "the batch has {} tasks, expected 1 to {most}",
            batch.tasks.len()
        ))
        .into());
    }
    let at = |i: usize, mut fault: Fault| {
        fault.message = format!("task {i} of the batch: {}", fault.message);
        fault
    };
    let mut specs = Vec::with_capacity(batch.tasks.len());
    for (i, task) in batch.tasks.iter().enumerate() {
        specs.push(task.spec(&state).await.map_err(|fault| at(i, fault))?);
    }
    let ids = submit_all(&state, specs).map_err(|(i, fault)| at(i, fault))?;
    let tasks: Vec<Value> = ids.into_iter().map(|id| accepted(&state, id)).collect();
    Ok((StatusCode::ACCEPTED, Json(json!({ "tasks": tasks }))))
}

/// Submits all or none: when one is refused, those before it are cancelled. Tasks with an
/// idempotency key stay, for the key may stand for an older task; a repeated batch finds them.
fn submit_all(state: &ServerState, specs: Vec<TaskSpec>) -> Result<Vec<TaskId>, (usize, Fault)> {
    let coordinator = state.coordinator();
    let mut ids = Vec::with_capacity(specs.len());
    let mut revocable = Vec::new();
    for (i, spec) in specs.into_iter().enumerate() {
        let keyed = spec.idempotency_key.is_some();
        match coordinator.submit(spec) {
            Ok(id) => {
                ids.push(id);
                if !keyed {
                    revocable.push(id);
                }
            }
            Err(error) => {
                for id in revocable {
                    // A task that is finished already cannot be taken back.
                    let _ = coordinator.cancel(id);
                }
                return Err((i, faults::cluster(error)));
            }
        }
    }
    Ok(ids)
}

/// `GET tasks`: a bare array, newest first, without outputs.
pub(crate) async fn list(State(state): State<ServerState>) -> Response {
    let records = state.coordinator().tasks();
    Json(records.iter().map(summary).collect::<Vec<_>>()).into_response()
}

/// `GET tasks/{id}`.
pub(crate) async fn show(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Response, ClusterError> {
    let record = state.coordinator().task(task_id(&params)?).map_err(faults::cluster)?;
    Ok(full(&record))
}

/// `DELETE tasks/{id}`: cancels what is not finished and answers what the task is then.
pub(crate) async fn cancel(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Response, ClusterError> {
    let record = state.coordinator().cancel(task_id(&params)?).map_err(faults::cluster)?;
    Ok(full(&record))
}

impl Task<'_> {
    /// The task, checked against its model.
    async fn spec(&self, state: &ServerState) -> Result<TaskSpec, Fault> {
        self.refuse_unbuilt()?;
        let (name, version) = model_name(&self.model)?;
        let entry = state.catalog().get(name, version).await?;
        let mut raw = Raw::none();
        let inputs: Vec<NamedTensor> =
            self.inputs.iter().map(|i| i.tensor(&mut raw)).collect::<Result<_, _>>()?;
        oip::check_inputs(entry.inputs(), &inputs)?;
        state.catalog().require_wanted(&entry)?;
        let mut spec = TaskSpec::new(entry.model().clone(), inputs);
        if let Some(priority) = &self.priority {
            spec.priority = priority.parse::<Priority>().map_err(faults::cluster)?;
        }
        spec.deadline = self.deadline(state.config().deadline_ms_max)?;
        spec.idempotency_key = self.key()?;
        Ok(spec)
    }

    fn refuse_unbuilt(&self) -> Result<(), Fault> {
        if self.durable == Some(true) {
            return Err(Fault::unsupported("durable tasks are not built yet")
                .hint("leave \"durable\" out; tasks then live in the coordinator's memory"));
        }
        if self.depends_on.as_ref().is_some_and(|ids| !ids.is_empty()) {
            return Err(Fault::unsupported("tasks that depend on others are not built yet")
                .hint("wait for the first task, then submit the second"));
        }
        Ok(())
    }

    fn deadline(&self, most: u64) -> Result<Option<Duration>, Fault> {
        match self.deadline_ms {
            None => Ok(None),
            Some(ms) if (1..=most).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
            Some(ms) => Err(Fault::bad_input(format!("deadline_ms is {ms}, expected 1 to {most}"))),
        }
    }

    fn key(&self) -> Result<Option<String>, Fault> {
        match &self.idempotency_key {
            Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => Err(Fault::bad_input(
                format!("idempotency_key has {} bytes, expected 1 to {KEY_BYTES_MAX}", key.len()),
            )),
            other => Ok(other.clone()),
        }
    }
}

/// `NAME` or `NAME/VERSION`, as workers list their models.
fn model_name(text: &str) -> Result<(&str, Option<u64>), Fault> {
    match text.split_once('/') {
        None => Ok((text, None)),
        Some((name, version)) => match version.parse() {
            Ok(version) => Ok((name, Some(version))),
            Err(_) => Err(Fault::bad_input(format!(
                "model '{text}' is not valid, expected NAME or NAME/VERSION"
            ))),
        },
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a Whole) -> Result<T, Fault> {
    serde_json::from_slice(&body.0)
        .map_err(|e| Fault::bad_input(format!("the request body is not valid: {e}")))
}

fn task_id(params: &Params) -> Result<TaskId, Fault> {
    let text = params.get("id");
    text.parse().map_err(|_| Fault::not_found("unknown_task", format!("no task '{text}'")))
}

fn accepted(state: &ServerState, id: TaskId) -> Value {
    // The record is there: it was made a moment ago. A full house may have dropped it already.
    let task = state.coordinator().task(id).map_or("queued", |record| record.state.name());
    json!({ "task_id": id, "state": task })
}

#[derive(Serialize)]
struct Summary<'a> {
    task_id: TaskId,
    model: String,
    priority: Priority,
    state: TaskState,
    attempts: u32,
    worker: &'a Option<WorkerId>,
    error: &'a Option<TaskError>,
    queued_ms: f64,
    model_ms: Option<f64>,
    overhead_ms: Option<f64>,
}

#[derive(Serialize)]
struct Full<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    outputs: Option<Vec<Output<'a>>>,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    shape: &'a [usize],
    datatype: &'static str,
    data: Flat<'a>,
}

fn summary(record: &TaskRecord) -> Summary<'_> {
    Summary {
        task_id: record.task_id,
        model: record.model.to_string(),
        priority: record.priority,
        state: record.state,
        attempts: record.attempts,
        worker: &record.worker,
        error: &record.error,
        queued_ms: record.queued_ms,
        model_ms: record.model_ms,
        overhead_ms: record.overhead_ms,
    }
}

fn output(output: &NamedTensor) -> Output<'_> {
    Output {
        name: &output.name,
        shape: output.tensor.shape().dims(),
        datatype: oip::datatype_name(output.tensor.dtype()),
        data: Flat(&output.tensor),
    }
}

fn full(record: &TaskRecord) -> Response {
    let outputs = record.outputs.as_ref().map(|all| all.iter().map(output).collect());
    Json(Full { summary: summary(record), outputs }).into_response()
}
