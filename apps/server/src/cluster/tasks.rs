//! Routes for submitting, watching and cancelling tasks.

mod repeats;

use super::references::{self, References, Taken, Written, check_task};
use super::waiting;
use crate::access::Caller;
use crate::bodies::Room;
use crate::extract::{Params, WithTensors, make_room, parse};
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::oip::{self, Flat, Inputs as Read, Raw, off_loop};
use crate::shared_memory::Shared;
use crate::state::ServerState;
use crate::stream;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lgp_distributed::{Backoff, TaskError, WorkerId};
use lgp_sdk::cluster::{Priority, TaskId, TaskRecord, TaskSpec, TaskState};
use lgp_sdk::tensor::NamedTensor;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::num::ParseIntError;
use std::time::Duration;

/// Longest idempotency key in bytes.
const KEY_BYTES_MAX: usize = 256;
/// Outputs of at least this many bytes are streamed.
const LARGE_BYTES: usize = 256 << 10;
/// The most attempts that a caller may ask for.
const ATTEMPTS_MAX: u32 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task<I> {
    model: String,
    inputs: I,
    durable: Option<bool>,
    idempotency_key: Option<String>,
    priority: Option<String>,
    deadline_ms: Option<u64>,
    /// Ids of earlier tasks, or `#N` for the task at position N of the same batch.
    depends_on: Option<Vec<String>>,
    affinity: Option<String>,
    hedge_after_ms: Option<u64>,
    max_attempts: Option<u32>,
    retry_base_ms: Option<u64>,
    retry_max_ms: Option<u64>,
    run_limit_ms: Option<u64>,
    /// Distinguishes requests with the same idempotency key.
    #[serde(skip)]
    digest: Option<repeats::Digest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<I> {
    tasks: Vec<Task<I>>,
}

/// A task's parsed inputs, or the error of parsing them.
type Inputs = Result<Vec<Taken>, Fault>;

/// `POST tasks`: 202 with id and state; for a durable task, after the journal has stored it.
pub(crate) async fn submit(
    State(state): State<ServerState>,
    caller: Caller,
    body: WithTensors,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    // The room is held while the tensors are hashed and written.
    let WithTensors { bytes, json_bytes, room: _room } = body;
    let (counted, size) = (Shared::new(&state, &caller), bytes.len());
    let read = move || read_one((json_bytes, &bytes), Some(&counted));
    // The room of the strings is freed once the coordinator owns the tensors.
    let (task, _strings) = off_loop(size, read).await?;
    if let Some(position) = task.depends_on.iter().flatten().find_map(|other| position(other)?.ok())
    {
        let message = format!("depends_on names task #{position} of a batch, and this is none");
        return Err(Fault::bad_input(message).into());
    }
    let ids = repeats::accept(&state, &caller, vec![task], |_, fault| fault).await?;
    let id = ids.into_iter().next();
    let id = id.ok_or_else(|| Fault::internal("a task was accepted without an id"))?;
    Ok((StatusCode::ACCEPTED, Json(accepted(&state, id))))
}

/// Parses a body into its task and the room of its strings.
fn read_one(
    (json_bytes, body): (Option<usize>, &[u8]),
    counted: Option<&Shared>,
) -> Result<(Task<Inputs>, Room), Fault> {
    let (json, raw) = Raw::split(json_bytes, body)?;
    let mut raw = raw.counted(counted);
    let task = parse::<Task<Vec<Written<'_>>>>(json)?.read(&mut raw);
    if task.inputs.is_ok() {
        raw.finish()?;
    }
    Ok((task, raw.into_room()))
}

/// Whether a body can be parsed as a task.
#[cfg(feature = "planted")]
pub(crate) fn can_read(json_bytes: Option<usize>, body: &[u8]) -> bool {
    read_one((json_bytes, body), None).is_ok_and(|(task, _)| task.inputs.is_ok())
}

/// `POST tasks/batch`: 202 with the tasks in the order of the request. Either all are accepted or
/// none.
pub(crate) async fn submit_batch(
    State(state): State<ServerState>,
    caller: Caller,
    body: WithTensors,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let most = state.config().batch_tasks_max;
    // The room is held while the tensors are hashed and written.
    let WithTensors { bytes, json_bytes, room: _room } = body;
    let counted = Shared::new(&state, &caller);
    let batch = off_loop(bytes.len(), move || {
        let (json, raw) = Raw::split(json_bytes, &bytes)?;
        let mut raw = raw.counted(Some(&counted));
        let Batch { tasks } = parse::<Batch<Vec<Written<'_>>>>(json)?;
        let count = tasks.len();
        if count == 0 || count > most {
            let what = format!("the batch has {count} tasks, expected 1 to {most}");
            return Err(Fault::bad_input(what));
        }
        let tasks: Vec<Task<Inputs>> = tasks.into_iter().map(|task| task.read(&mut raw)).collect();
        if tasks.iter().all(|task| task.inputs.is_ok()) {
            raw.finish()?;
        }
        Ok((tasks, raw.into_room()))
    });
    let (batch, _strings) = batch.await?;
    caller.count(state.access().limits(), batch.len().saturating_sub(1))?;
    let at = |i: usize, mut fault: Fault| {
        fault.message = format!("task {i} of the batch: {}", fault.message);
        fault
    };
    let ids = repeats::accept(&state, &caller, batch, at).await?;
    let tasks: Vec<Value> = ids.into_iter().map(|id| accepted(&state, id)).collect();
    Ok((StatusCode::ACCEPTED, Json(json!({ "tasks": tasks }))))
}

/// `GET tasks/{id}/why`: each decision about a task, and the reason why it waits.
pub(crate) async fn why(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let id = task_id(&params)?;
    check_task(&state, &caller, id).await?;
    let lines = state.coordinator().explain(id).await.map_err(faults::cluster)?;
    let lines = lines.into_iter().map(|(at_ms, what)| json!({ "at_ms": at_ms, "what": what }));
    Ok(Json(json!({ "task_id": id, "decisions": lines.collect::<Vec<Value>>() })))
}

/// `GET tasks/{id}?wait_ms=N`: answers once the task has ended, after `wait_ms` at the latest.
pub(crate) async fn show(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
    RawQuery(query): RawQuery,
) -> Result<Response, ClusterError> {
    let id = task_id(&params)?;
    check_task(&state, &caller, id).await?;
    let wait = waiting::limit(&query.unwrap_or_default(), state.config().deadline_ms_max)?;
    if let Some(record) = waiting::ended((&state, &caller), id, wait).await? {
        return answer(&state, &caller, record, Room::default()).await;
    }
    let room = room_for_result((&state, &caller), id).await?;
    let record = state.coordinator().task(id).await.map_err(faults::cluster)?;
    answer(&state, &caller, record, room).await
}

/// Reserves room for outputs that are read from a file, as for a body.
async fn room_for_result(
    (state, caller): (&ServerState, &Caller),
    id: TaskId,
) -> Result<Room, Fault> {
    let bytes = state.coordinator().stored_bytes(id).await.map_err(faults::cluster)?;
    let mut room = state.bodies().room_of(caller.id());
    make_room(state, &mut room, usize::try_from(bytes).unwrap_or(usize::MAX)).await?;
    Ok(room)
}

/// `DELETE tasks/{id}/result`: drops the result of a finished task.
pub(crate) async fn let_go(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let id = task_id(&params)?;
    check_task(&state, &caller, id).await?;
    let ended = state.coordinator().let_go(id).await.map_err(faults::cluster)?;
    Ok(Json(json!({ "task_id": id, "state": ended, "let_go": true })))
}

/// `DELETE tasks/{id}`: cancels an unfinished task and answers its state after that.
pub(crate) async fn cancel(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<Response, ClusterError> {
    let id = task_id(&params)?;
    check_task(&state, &caller, id).await?;
    let room = room_for_result((&state, &caller), id).await?;
    let record = state.coordinator().cancel(id).await.map_err(faults::cluster)?;
    answer(&state, &caller, record, room).await
}

/// `POST tasks/{id}/retry`: 202 with a new task that runs the same work.
pub(crate) async fn retry(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let id = task_id(&params)?;
    check_task(&state, &caller, id).await?;
    let again = state.coordinator().retry(id).await.map_err(faults::cluster)?;
    let told = state.coordinator().state(again).unwrap_or(TaskState::Queued);
    Ok((StatusCode::ACCEPTED, Json(json!({ "task_id": again, "state": told }))))
}

impl Task<Vec<Written<'_>>> {
    /// Parses the inputs, some of which may follow as raw bytes.
    fn read(self, raw: &mut Raw<'_>) -> Task<Inputs> {
        let mut task = Task {
            inputs: self.inputs.into_iter().map(|input| input.read(raw)).collect(),
            model: self.model,
            durable: self.durable,
            idempotency_key: self.idempotency_key,
            priority: self.priority,
            deadline_ms: self.deadline_ms,
            depends_on: self.depends_on,
            affinity: self.affinity,
            hedge_after_ms: self.hedge_after_ms,
            max_attempts: self.max_attempts,
            retry_base_ms: self.retry_base_ms,
            retry_max_ms: self.retry_max_ms,
            run_limit_ms: self.run_limit_ms,
            digest: None,
        };
        task.digest = task.digest_of_sent();
        task
    }
}

impl Task<Inputs> {
    /// Refuses a task of a model that the caller's key does not cover.
    fn check_caller(&self, caller: &Caller) -> Result<(), Fault> {
        caller.check_model(model_name(&self.model)?.0)
    }

    /// The task's spec, checked against its model, and the batch positions of the tasks that it
    /// depends on.
    async fn spec(
        mut self,
        state: &ServerState,
        references: &mut References<'_>,
    ) -> Result<(TaskSpec, Vec<usize>), Fault> {
        let (name, version) = model_name(&self.model)?;
        let mut named = state.catalog().named(name, version).await?;
        let most = state.config().deadline_ms_max;
        let deadline = bounded_ms("deadline_ms", self.deadline_ms, most)?;
        let inputs = std::mem::replace(&mut self.inputs, Ok(Vec::new()))?;
        let is_late = references::any_elsewhere(&inputs);
        let limit = deadline.unwrap_or(state.config().deadline_max());
        let inputs = references.resolve(inputs, limit).await?;
        if is_late {
            // Another version may have been added meanwhile.
            named = state.catalog().named(name, version).await?;
        }
        let inputs = Read::from(inputs);
        // A task belongs to no sequence, so it must bring every input of the model.
        oip::check_all(named.entry().all_inputs(), &inputs)?;
        let key = self.idempotency_key.as_deref();
        let entry = state.catalog().answering(&named, key).await?;
        oip::check_all(entry.all_inputs(), &inputs)?;
        if entry.ensemble().is_some() {
            let name = entry.name();
            let what = format!("'{name}' is an ensemble, expected a model");
            return Err(Fault::bad_input(what).hint(format!(
                "ask the ensemble for an inference, POST /v2/models/{name}/infer, or submit tasks of its models"
            )));
        }
        state.catalog().require_wanted(&entry)?;
        let mut spec = TaskSpec::new(entry.model().clone(), inputs.tensors);
        if let Some(priority) = &self.priority {
            spec.priority = priority.parse::<Priority>().map_err(faults::cluster)?;
        }
        // The deadline as requested, so that a repeated request stays identical.
        spec.deadline = deadline;
        (spec.idempotency_key, spec.request_digest) = (self.key()?, self.digest);
        spec.durable = self.durable.unwrap_or(false);
        spec.affinity.clone_from(&self.affinity);
        spec.hedge_after = bounded_ms("hedge_after_ms", self.hedge_after_ms, most)?;
        spec.max_attempts = self.max_attempts()?;
        spec.backoff = self.backoff(most)?;
        spec.run_limit = bounded_ms("run_limit_ms", self.run_limit_ms, most)?;
        let mut within = Vec::new();
        for other in self.depends_on.iter().flatten() {
            match position(other) {
                Some(Ok(position)) => within.push(position),
                Some(Err(_)) => return Err(unknown_dependency(other)),
                None => {
                    spec.depends_on.push(other.parse().map_err(|_| unknown_dependency(other))?);
                }
            }
        }
        Ok((spec, within))
    }

    fn max_attempts(&self) -> Result<u32, Fault> {
        match self.max_attempts {
            None => Ok(TaskSpec::DEFAULT_MAX_ATTEMPTS),
            Some(given) if (1..=ATTEMPTS_MAX).contains(&given) => Ok(given),
            Some(given) => {
                let what = format!("max_attempts is {given}, expected 1 to {ATTEMPTS_MAX}");
                Err(Fault::bad_input(what))
            }
        }
    }

    /// The retry waits. If only one is given, the other is the coordinator's default, or equal to
    /// the given one if the default does not fit.
    fn backoff(&self, most: u64) -> Result<Option<Backoff>, Fault> {
        let base = bounded_ms("retry_base_ms", self.retry_base_ms, most)?;
        let max = bounded_ms("retry_max_ms", self.retry_max_ms, most)?;
        match (base, max) {
            (None, None) => Ok(None),
            (Some(base), Some(max)) if base > max => {
                let (base, max) = (base.as_millis(), max.as_millis());
                let what = format!("retry_base_ms is {base}, expected at most retry_max_ms, {max}");
                Err(Fault::bad_input(what))
            }
            (base, max) => {
                let base =
                    base.unwrap_or_else(|| Backoff::DEFAULT.base.min(max.unwrap_or(Duration::MAX)));
                let max = max.unwrap_or(Backoff::DEFAULT.max).max(base);
                Ok(Some(Backoff { base, max }))
            }
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

fn bounded_ms(key: &str, given: Option<u64>, most: u64) -> Result<Option<Duration>, Fault> {
    match given {
        None => Ok(None),
        Some(ms) if (1..=most).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
        Some(ms) => Err(Fault::bad_input(format!("{key} is {ms}, expected 1 to {most}"))),
    }
}

/// The batch position in `#N`.
fn position(other: &str) -> Option<Result<usize, ParseIntError>> {
    other.strip_prefix('#').map(str::parse)
}

fn unknown_dependency(given: &str) -> Fault {
    let given: String = given.chars().take(64).collect();
    let expected = "the id of a task, or #N for the task at position N of the same batch";
    Fault::bad_input(format!("depends_on has '{given}', expected {expected}"))
}

/// `NAME` or `NAME/VERSION`, as in workers' lists of models.
pub(super) fn model_name(text: &str) -> Result<(&str, Option<u64>), Fault> {
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

fn task_id(params: &Params) -> Result<TaskId, Fault> {
    let text = params.get("id");
    text.parse().map_err(|_| faults::unknown_task(format!("no task '{text}'")))
}

fn accepted(state: &ServerState, id: TaskId) -> Value {
    // The task was accepted just now, but a full coordinator may have dropped its record already.
    let task = state.coordinator().state(id).map_or("queued", TaskState::name);
    json!({ "task_id": id, "state": task })
}

#[derive(Serialize)]
pub(super) struct Summary<'a> {
    task_id: TaskId,
    model: String,
    priority: Priority,
    durable: bool,
    depends_on: &'a [TaskId],
    state: TaskState,
    attempts: u32,
    worker: &'a Option<WorkerId>,
    device: Option<&'a str>,
    variant: Option<String>,
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

pub(super) fn summary(record: &TaskRecord) -> Summary<'_> {
    Summary {
        task_id: record.task_id,
        model: record.model.to_string(),
        priority: record.priority,
        durable: record.durable,
        depends_on: &record.depends_on,
        state: record.state,
        attempts: record.attempts,
        worker: &record.worker,
        device: record.device.as_deref(),
        variant: record.variant.as_ref().map(ToString::to_string),
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

/// A record that serializes its outputs one at a time, so that large JSON is never in memory as a whole.
struct Told(TaskRecord);

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let outputs = self.0.outputs.as_ref().map(|all| all.iter().map(output).collect());
        Full { summary: summary(&self.0), outputs }.serialize(serializer)
    }
}

async fn answer(
    state: &ServerState,
    caller: &Caller,
    record: TaskRecord,
    room: Room,
) -> Result<Response, ClusterError> {
    let record = faults::for_caller(caller, record);
    let outputs = record.outputs.iter().flatten();
    let bytes: usize = outputs.map(|output| output.tensor.packed_len()).sum();
    if bytes < LARGE_BYTES {
        return Ok(Json(Told(record)).into_response());
    }
    Ok(stream::json(state, Told(record), room).await?)
}
