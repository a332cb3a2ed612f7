//! Inference: a request becomes a task of the cluster, its answer is waited for.

use super::models;
use super::parts::Body;
use super::request::{self, InferRequest};
use super::response::{self, Choice};
use crate::access::Caller;
use crate::cache;
use crate::catalog::{ModelEntry, Named};
use crate::ensemble::{self, Ensemble};
use crate::extract::{Params, WithTensors};
use crate::fault::{Fault, OipError};
use crate::faults;
use crate::metrics::{FailureReason, Pending, Spans};
use crate::shared_memory::Shared;
use crate::state::ServerState;
use axum::extract::State;
use axum::response::Response;
use lgp_sdk::{Coordinator, NamedTensor, TaskId, TaskRecord, TaskSpec};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bodies from this size on, and those that name shared memory, are read and written away from the threads that serve connections.
pub(crate) const LARGE_BYTES: usize = 256 << 10;

/// `POST /v2/models/{m}[/versions/{v}]/infer`.
pub(crate) async fn infer(
    State(state): State<ServerState>,
    caller: Caller,
    params: Params,
    body: Body,
) -> Result<Response, OipError> {
    let named = models::named(&state, &params).await?;
    let shared = Shared::new(&state, &caller);
    let size = |json: &[u8], bytes| if shared.may_be_named(json) { LARGE_BYTES } else { bytes };
    match body {
        Body::Tensors(WithTensors { bytes, json_bytes, room: _room }) => {
            // The room is held while the task has the tensors.
            let json = bytes.get(..json_bytes.unwrap_or(bytes.len())).unwrap_or_default();
            let size = size(json, bytes.len());
            let decode = move |entry: &ModelEntry| {
                request::decode(
                    (json_bytes, &bytes),
                    Some(&shared),
                    entry.inputs(),
                    entry.outputs(),
                )
            };
            Ok(serve(&state, &named, (size, decode), response::encode).await?.into_response())
        }
        Body::Parts(mut parts) => {
            let (size, _room) = (size(parts.json(), parts.bytes), std::mem::take(&mut parts.room));
            let decode = move |entry: &ModelEntry| parts.decode(&shared, entry);
            Ok(serve(&state, &named, (size, decode), response::encode).await?.into_response())
        }
    }
}

/// An answer before it is written in the form of a protocol.
pub(crate) struct Answer {
    pub(crate) entry: ModelEntry,
    pub(crate) id: String,
    pub(crate) choice: Choice,
    pub(crate) outputs: Vec<NamedTensor>,
}

/// Serves one inference, whatever protocol it came by: reads a request of so many bytes, runs it as a
/// task, writes the answer, and counts all of it.
pub(crate) async fn serve<T: Send + 'static>(
    state: &ServerState,
    named: &Named,
    (bytes, decode): (
        usize,
        impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static,
    ),
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let entry = named.entry();
    let mut pending = state.metrics().model(entry.name(), entry.version()).begin();
    let started = Instant::now();
    match answer(state, (named, &mut pending), (bytes, decode), encode).await {
        Ok((answer, mut spans, attempts)) => {
            spans.request = started.elapsed();
            pending.succeeded(&spans, attempts);
            Ok(answer)
        }
        Err(fault) => {
            pending.failed(reason(&fault), started.elapsed());
            Err(fault)
        }
    }
}

async fn answer<T: Send + 'static>(
    state: &ServerState,
    (named, pending): (&Named, &mut Pending),
    (bytes, decode): (
        usize,
        impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static,
    ),
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<(T, Spans, u32), Fault> {
    if !named.is_alias() {
        state.catalog().require_ready(named.entry())?;
    }
    let mut clock = Instant::now();
    let asked = named.entry().clone();
    let request = off_loop(bytes, move || decode(&asked)).await?;
    let id = request.id.as_deref();
    let entry = &state.catalog().answering(named, id, &request.inputs).await?;
    check_kind(entry, &request)?;
    if named.is_alias() {
        pending.moved(state.metrics().model(entry.name(), entry.version()));
        state.catalog().require_ready(entry)?;
    }
    let model = entry.cache().map(|_| entry.model().clone());
    let identify = move || {
        let key = model.map(|model| cache::key(&model, &request.inputs.tensors));
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
            let spans = Spans { compute_input, overhead: Some(Duration::ZERO), ..Spans::default() };
            let answer =
                Answer { entry: entry.clone(), id: id.unwrap_or_default(), choice, outputs };
            let encoded = written(answer, encode).await?;
            return Ok((encoded, Spans { compute_output: lap(&mut clock), ..spans }, 0));
        }
    }
    let Ran { outputs, spans, attempts, task, is_variant } = match entry.ensemble() {
        None => run(state, entry, request).await?,
        Some(ensemble) => {
            request.id.clone_from(&id);
            all_steps(state, entry, ensemble, request).await?
        }
    };
    let spans = Spans { compute_input, ..spans };
    clock = Instant::now();
    // What a variant answered is not this model's answer.
    if let (Some((cache, key)), false) = (kept, is_variant) {
        cache.put(key, &outputs, clock);
    }
    // The protocol wants an id in every answer; the task's own tells a log reader most.
    let id = id.unwrap_or(task);
    let answer = Answer { entry: entry.clone(), id, choice, outputs };
    let encoded = written(answer, encode).await?;
    Ok((encoded, Spans { compute_output: lap(&mut clock), ..spans }, attempts))
}

async fn written<T: Send + 'static>(
    answer: Answer,
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let bytes = answer.outputs.iter().map(|o| o.tensor.packed_len()).sum();
    off_loop(bytes, move || encode(answer)).await
}

/// Runs the task to its end; cancels it when the client goes away first.
async fn run(state: &ServerState, entry: &ModelEntry, request: InferRequest) -> Result<Ran, Fault> {
    let mut spec = TaskSpec::new(entry.model().clone(), request.inputs.tensors);
    spec.priority = request.priority;
    let longest = state.config().deadline_max();
    spec.deadline = Some(request.timeout.map_or(longest, |timeout| timeout.min(longest)));
    let coordinator = state.coordinator();
    // Large inputs are hashed before the task is there.
    let ids = coordinator.submit_all(vec![(spec, Vec::new())]).await.map_err(faults::cluster)?;
    let id = *ids.first().ok_or_else(|| Fault::internal("a task was accepted without an id"))?;
    let mut guard = CancelOnDrop { coordinator, task: Some(id) };
    let record = tokio::select! {
        biased;
        record = coordinator.wait(id) => record.map_err(faults::cluster)?,
        // It would wait until somebody loads the model again; its caller may not.
        fault = state.catalog().stranded(entry, id) => return Err(fault),
    };
    guard.task = None;
    match &record.error {
        Some(error) => Err(faults::task(error)),
        None => Ran::of(record),
    }
}

/// Runs the steps of an ensemble; its models count for themselves.
async fn all_steps(
    state: &ServerState,
    entry: &ModelEntry,
    ensemble: &Arc<Ensemble>,
    request: InferRequest,
) -> Result<Ran, Fault> {
    let began = Instant::now();
    let ran = ensemble::run(state, entry, Arc::clone(ensemble), request).await?;
    let spans = Spans { compute_infer: began.elapsed(), overhead: None, ..Spans::default() };
    let task = ran.task.unwrap_or_default();
    Ok(Ran { outputs: ran.outputs, spans, attempts: 1, task, is_variant: false })
}

/// Refuses what a model cannot take, and an ensemble within another.
fn check_kind(entry: &ModelEntry, request: &InferRequest) -> Result<(), Fault> {
    match (entry.ensemble(), request.inputs.blobs.first()) {
        (None, Some(blobs)) => Err(blobs.is_no_text()),
        (Some(_), _) if request.is_step => {
            let what = format!("'{}' is an ensemble, and ensembles run models alone", entry.name());
            Err(Fault::bad_input(what))
        }
        _ => Ok(()),
    }
}

/// What ran, and how it went.
struct Ran {
    outputs: Vec<NamedTensor>,
    spans: Spans,
    attempts: u32,
    /// The id of the task.
    task: String,
    is_variant: bool,
}

impl Ran {
    fn of(record: TaskRecord) -> Result<Self, Fault> {
        let spans = Spans {
            queue: millis(Some(record.queued_ms)),
            compute_infer: millis(record.model_ms),
            overhead: Some(millis(record.overhead_ms)),
            ..Spans::default()
        };
        let outputs = record.outputs;
        Ok(Self {
            outputs: outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))?,
            spans,
            attempts: record.attempts,
            task: record.task_id.to_string(),
            is_variant: record.variant.is_some(),
        })
    }
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
