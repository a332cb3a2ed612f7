//! Inference: a request becomes a task of the cluster, its answer is waited for.

use super::models;
use super::request::{self, InferRequest};
use super::response::{self, Choice};
use crate::access::Caller;
use crate::cache;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::extract::{Params, WithTensors};
use crate::fault::{Fault, OipError};
use crate::faults;
use crate::metrics::{FailureReason, Pending, Spans};
use crate::shadow::{self, Answered};
use crate::place::Place;
use crate::shared_memory::Shared;
use crate::state::ServerState;
use crate::trace::{Ran, Steps};
use axum::extract::State;
use axum::response::Response;
use lgp_sdk::{Coordinator, NamedTensor, Priority, TaskId, TaskRecord, TaskSpec};
use std::time::{Duration, Instant};

/// Bodies from this size on, and those that name shared memory, are read and written away from the threads that serve connections.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// `POST /v2/models/{m}[/versions/{v}]/infer`.
pub(crate) async fn infer(
    State(state): State<ServerState>,
    call: Call,
    caller: Caller,
    params: Params,
    body: WithTensors,
) -> Result<Response, OipError> {
    let named = models::named(&state, &params).await?;
    let WithTensors { bytes, json_bytes, room } = body;
    let shared = Shared::new(&state, &caller);
    let json = bytes.get(..json_bytes.unwrap_or(bytes.len())).unwrap_or_default();
    let size = if shared.may_be_named(json) { LARGE_BYTES } else { bytes.len() };
    let decode = move |entry: &ModelEntry| {
        request::decode((json_bytes, &bytes), Some(&shared), entry.inputs(), entry.outputs())
    };
    let encoded = serve(&state, (&call, &named), (size, decode), response::encode).await?;
    // Held while the task has the tensors.
    drop(room);
    Ok(encoded.into_response())
}

/// An answer before it is written in the form of a protocol.
pub(crate) struct Answer {
    pub(crate) entry: ModelEntry,
    pub(crate) id: String,
    pub(crate) choice: Choice,
    pub(crate) outputs: Vec<NamedTensor>,
    /// Where the model ran; nowhere where the answer was kept.
    pub(crate) place: Option<Place>,
}

/// What came of a request, for the counters.
struct Served<T> {
    encoded: T,
    spans: Spans,
    attempts: u32,
    place: Option<Place>,
}

/// Serves one inference, whatever protocol it came by: reads a request of so many bytes, runs it as a
/// task, writes the answer, and counts all of it.
pub(crate) async fn serve<T: Send + 'static>(
    state: &ServerState,
    (call, named): (&Call, &Named),
    (bytes, decode): (
        usize,
        impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static,
    ),
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let entry = named.entry();
    let counters = state.metrics().model(entry.name(), entry.version());
    let mut pending = counters.begin();
    let mut steps = Steps::begin(entry.model());
    let answered = match counters.pending() > state.config().pending_max {
        true => Err(too_many(entry, state.config().pending_max)),
        false => {
            let work = (call, named, &mut pending, &mut steps);
            answer(state, work, (bytes, decode), encode).await
        }
    };
    let time = steps.elapsed();
    let error = answered.as_ref().err().map(|fault| fault.code);
    call.inferred(state.tracing().tracer(), steps, error);
    match answered {
        Ok(Served { encoded, mut spans, attempts, place }) => {
            spans.request = time;
            pending.succeeded(&spans, attempts, (place, call.kept_trace()));
            Ok(encoded)
        }
        Err(fault) => {
            pending.failed(reason(&fault), time);
            Err(fault)
        }
    }
}

fn too_many(entry: &ModelEntry, most: u64) -> Fault {
    let name = entry.name();
    let message = format!("{most} inferences of model '{name}' are under way, which is the most");
    Fault::unavailable("overloaded", message).hint("come again later; pending_max sets the limit")
}

async fn answer<T: Send + 'static>(
    state: &ServerState,
    (call, named, pending, steps): (&Call, &Named, &mut Pending, &mut Steps),
    (bytes, decode): (
        usize,
        impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static,
    ),
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<Served<T>, Fault> {
    if !named.is_alias() {
        call.about(named.entry());
        state.catalog().require_ready(named.entry())?;
    }
    let mut clock = Instant::now();
    let began = clock;
    let asked = named.entry().clone();
    let request = off_loop(bytes, move || decode(&asked)).await;
    steps.decode = Some((began, Instant::now()));
    let request = request?;
    let id = request.id.as_deref();
    if let Some(id) = id {
        call.named(id);
    }
    let entry = &state.catalog().answering(named, id, &request.inputs).await?;
    if named.is_alias() {
        pending.moved(state.metrics().model(entry.name(), entry.version()));
        call.about(entry);
        steps.model = entry.model().clone();
        state.catalog().require_ready(entry)?;
    }
    let model = entry.cache().map(|_| entry.model().clone());
    let identify = move || {
        let key = model.map(|model| cache::key(&model, &request.inputs));
        Ok((request, key))
    };
    let (mut request, key) = match entry.cache() {
        Some(_) => off_loop(bytes, identify).await?,
        None => identify()?,
    };
    let compute_input = lap(&mut clock);

    let choice = Choice::of(&mut request);
    let id = request.id.take();
    let _room = std::mem::take(&mut request.room);
    let kept = entry.cache().zip(key);
    if let Some((cache, key)) = &kept {
        let found = cache.get(key, Instant::now());
        pending.looked_up(found.is_some());
        if let Some(outputs) = found {
            let spans = Spans { compute_input, ..Spans::default() };
            let (entry, id) = (entry.clone(), id.unwrap_or_default());
            let answer = Answer { entry, id, choice, outputs, place: None };
            let encoded = written(answer, encode, steps).await?;
            let spans = Spans { compute_output: lap(&mut clock), ..spans };
            return Ok(Served { encoded, spans, attempts: 0, place: None });
        }
    }
    let shadow = state.catalog().shadow(named);
    let copy = shadow.map(|shadow| (shadow, request.inputs.clone()));
    let mut spec = TaskSpec::new(entry.model().clone(), request.inputs);
    (spec.priority, spec.deadline) = (request.priority, request.timeout);
    let record = run(state, (call, entry, steps), spec).await?;
    clock = Instant::now();

    let overhead = millis(record.overhead_ms);
    let spans = Spans {
        queue: millis(Some(record.queued_ms)),
        compute_infer: millis(record.model_ms),
        overhead,
        compute_input,
        ..Spans::default()
    };
    let (attempts, place) = (record.attempts, Place::of(&record));
    let outputs =
        record.outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))?;
    // What a variant answered is not this model's answer.
    if let (Some((cache, key)), None) = (kept, record.variant) {
        cache.put(key, &outputs, clock);
    }
    let copy = copy.map(|(shadow, inputs)| (shadow, Answered { inputs, outputs: outputs.clone() }));
    // The protocol wants an id in every answer; the task's own tells a log reader most.
    let id = id.unwrap_or_else(|| record.task_id.to_string());
    let answer = Answer { entry: entry.clone(), id, choice, outputs, place: place.clone() };
    let encoded = written(answer, encode, steps).await?;
    if let Some((shadow, answered)) = copy {
        shadow::cast(state, shadow, answered);
    }
    let spans = Spans { compute_output: lap(&mut clock), ..spans };
    Ok(Served { encoded, spans, attempts, place })
}

async fn written<T: Send + 'static>(
    answer: Answer,
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
    steps: &mut Steps,
) -> Result<T, Fault> {
    let bytes = answer.outputs.iter().map(|o| o.tensor.packed_len()).sum();
    let began = Instant::now();
    let written = off_loop(bytes, move || encode(answer)).await;
    steps.encode = Some((began, Instant::now()));
    written
}

/// Runs the task to its end; cancels it when the client goes away first.
async fn run(
    state: &ServerState,
    (call, entry, steps): (&Call, &ModelEntry, &mut Steps),
    mut spec: TaskSpec,
) -> Result<TaskRecord, Fault> {
    let longest = state.config().deadline_max();
    spec.deadline = Some(spec.deadline.map_or(longest, |deadline| deadline.min(longest)));
    let (coordinator, submitted) = (state.coordinator(), Instant::now());
    // Large inputs are hashed before the task is there.
    let ids = coordinator.submit_all(vec![(spec, Vec::new())]).await.map_err(faults::cluster)?;
    let id = *ids.first().ok_or_else(|| Fault::internal("a task was accepted without an id"))?;
    call.runs(id);
    let mut guard = CancelOnDrop { coordinator, task: Some(id) };
    let record = tokio::select! {
        biased;
        record = coordinator.wait(id) => record.map_err(faults::cluster)?,
        // It would wait until somebody loads the model again; its caller may not.
        fault = state.catalog().stranded(entry, id) => return Err(fault),
    };
    guard.task = None;
    steps.task = Some(Ran::of(&record, submitted));
    match faults::task(&record) {
        Some(fault) => Err(fault),
        None => Ok(record),
    }
}

/// Runs a model for nobody who waits, if it is done within a time; answers its outputs.
pub(crate) async fn run_in_background(
    state: &ServerState,
    entry: &ModelEntry,
    inputs: Vec<NamedTensor>,
    within: Duration,
) -> Result<Vec<NamedTensor>, Fault> {
    let mut spec = TaskSpec::new(entry.model().clone(), inputs);
    (spec.priority, spec.deadline) = (Priority::Background, Some(within));
    let (call, mut steps) = (Call::unseen(), Steps::begin(entry.model()));
    let outputs = run(state, (&call, entry, &mut steps), spec).await?.outputs;
    outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))
}

struct CancelOnDrop<'a> {
    coordinator: &'a Coordinator,
    task: Option<TaskId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task
            && let Err(error) = self.coordinator.give_up(task)
        {
            tracing::debug!(%task, %error, "cannot cancel the task of a client that went away");
        }
    }
}

/// Does what takes long for so many bytes away from the threads that serve connections.
pub(crate) async fn off_loop<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    if bytes < LARGE_BYTES {
        return work();
    }
    // Lines of the log stay those of the request.
    let span = tracing::Span::current();
    let work = move || span.in_scope(work);
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
}

fn lap(clock: &mut Instant) -> Duration {
    let now = Instant::now();
    let time = now - *clock;
    *clock = now;
    time
}

fn millis(ms: Option<f64>) -> Duration {
    Duration::try_from_secs_f64(ms.unwrap_or(0.0) / 1e3).unwrap_or_default()
}

fn reason(fault: &Fault) -> FailureReason {
    match fault.code {
        "model_failed" => FailureReason::Backend,
        "cancelled" => FailureReason::Canceled,
        "internal" => FailureReason::Other,
        _ => FailureReason::Rejected,
    }
}
