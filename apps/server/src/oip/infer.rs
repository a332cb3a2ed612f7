//! Inference: a request becomes a task of the cluster, and the server waits for its result.

use super::models;
use super::off_loop::{off_loop, weight};
use super::parts::Body;
use super::receive::{Received, check_pending, receive};
use super::request::{self, InferRequest};
use super::response::{self, Answer, Choice};
use super::task::{self, Outcome};
use crate::access::Caller;
use crate::cache;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::extract::{Params, WithTensors};
use crate::fault::{Fault, OipError};
use crate::faults;
use crate::metrics::{FailureReason, Pending, Spans, Work};
use crate::place::{Place, Ran};
use crate::sequences::Line;
use crate::shadow::{self, Answered};
use crate::shared_memory::Shared;
use crate::state::ServerState;
use crate::trace::Steps;
use axum::extract::State;
use axum::response::Response;
use std::time::{Duration, Instant};

/// `POST /v2/models/{m}[/versions/{v}]/infer`.
pub(crate) async fn infer(
    State(state): State<ServerState>,
    call: Call,
    caller: Caller,
    params: Params,
    body: Body,
) -> Result<Response, OipError> {
    let named = models::named(&state, &params).await?;
    let shared = Shared::new(&state, &caller);
    let version = params.find("version").and_then(|version| version.parse().ok());
    let line = Line::of(&state, &caller, params.get("model"), version);
    let size = |json: &[u8], raw| weight(json.len(), shared.bytes_named(json).saturating_add(raw));
    let about = (&call, &named);
    let most = state.config().binary_bytes_max;
    let encode = move |answer| response::encode(answer, most);
    match body {
        Body::Tensors(WithTensors { bytes, json_bytes, room: _room }) => {
            // The room is held while the task has the tensors.
            let json = bytes.get(..json_bytes.unwrap_or(bytes.len())).unwrap_or_default();
            let size = size(json, bytes.len().saturating_sub(json.len()));
            let decode = move |entry: &ModelEntry| {
                let specs = (entry.inputs(), entry.outputs());
                let request =
                    request::decode((json_bytes, &bytes), Some(&shared), specs.0, specs.1)?;
                Ok(request.lined_up(line))
            };
            Ok(serve(&state, about, (size, decode), encode)
                .await?
                .into_response(&state, &caller)
                .await?)
        }
        Body::Parts(mut parts) => {
            let (size, _room) = (size(parts.json(), parts.bytes), std::mem::take(&mut parts.room));
            let decode = move |entry: &ModelEntry| Ok(parts.decode(&shared, entry)?.lined_up(line));
            Ok(serve(&state, about, (size, decode), encode)
                .await?
                .into_response(&state, &caller)
                .await?)
        }
    }
}

/// The result of a request, with data for the counters.
struct Served<T> {
    encoded: T,
    spans: Spans,
    work: Option<Work>,
    place: Option<Place>,
}

/// Serves one inference of any protocol: decodes a request of this many bytes, runs it as a task, encodes the
/// answer, and counts all of it.
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
    let mut pending = counters.begin(call.caller());
    let mut steps = Steps::begin(entry);
    // For an alias, the answering model is not known yet.
    let taken =
        if named.is_alias() { Ok(()) } else { check_pending((state, call), entry, &counters) };
    let answered = match taken {
        Ok(()) => {
            let work = (call, named, &mut pending, &mut steps);
            answer(state, work, (bytes, decode), encode).await
        }
        Err(fault) => Err(fault),
    };
    let time = steps.elapsed();
    let error = answered.as_ref().err().map(|fault| fault.code);
    call.inferred(state.tracing().tracer(), steps, error);
    match answered {
        Ok(Served { encoded, mut spans, work, place }) => {
            spans.request = time;
            pending.succeeded(&spans, work, (place, call.kept_trace()));
            Ok(encoded)
        }
        Err(fault) => {
            pending.failed(reason(&fault), time);
            Err(fault)
        }
    }
}

async fn answer<T: Send + 'static>(
    state: &ServerState,
    (call, named, pending, steps): (&Call, &Named, &mut Pending, &mut Steps),
    read: (usize, impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static),
    encode: impl FnOnce(Answer) -> Result<T, Fault> + Send + 'static,
) -> Result<Served<T>, Fault> {
    let about = (call, &mut *pending, &mut *steps);
    let Received { mut entry, request, mut turn, waited, mut clock } =
        receive(state, named, about, read).await?;
    let compute_input = lap(&mut clock);
    let (mut request, key) = identified(&entry, request).await?;
    let choice = Choice::of(&mut request);
    let id = request.id.take();
    let _room = std::mem::take(&mut request.room);
    let kept = entry.cache().cloned().zip(key);
    if let Some((cache, key)) = &kept {
        let found = cache.get(key, Instant::now());
        pending.looked_up(found.is_some(), lap(&mut clock));
        if let Some(outputs) = found {
            let id = id.unwrap_or_default();
            let answer = Answer { entry, id, choice, outputs, ran: None };
            let encoded = written(answer, encode, steps).await?;
            let spans = Spans { overhead: Some(Duration::ZERO), ..Spans::default() };
            return Ok(Served { encoded, spans, work: None, place: None });
        }
    }
    if let Some(turn) = &mut turn {
        turn.give(&entry, &mut request.inputs.tensors).await?;
    }
    let shadow = state.catalog().shadow(named).filter(|_| turn.is_none());
    let copy = shadow.map(|shadow| (shadow, request.inputs.tensors.clone()));
    // A sequence does not continue on another version.
    let alone = turn.as_ref().map(|_| Named::from(entry.clone()));
    let named = alone.as_ref().unwrap_or(named);
    let rows = task::rows(&entry, &request.inputs);
    let about = (call, &mut *pending, &mut *steps);
    let outcome = run(state, (named, &mut entry), about, (id.as_deref(), request)).await?;
    let Outcome { mut outputs, spans, executions, batch, task, place, is_variant } = outcome;
    let work = Work { rows, executions, batch: batch.map(|batch| rows.saturating_mul(batch)) };
    let spans = Spans { compute_input, queue: spans.queue + waited, ..spans };
    clock = Instant::now();
    // The cache must not keep a variant's answer for this model.
    if let (Some((cache, key)), false) = (kept, is_variant) {
        cache.put(key, &outputs, clock);
        pending.kept(lap(&mut clock));
    }
    let states = turn.as_ref().map(|turn| turn.take(&entry, &mut outputs)).transpose()?;
    let copy = copy.map(|(shadow, inputs)| (shadow, Answered { inputs, outputs: outputs.clone() }));
    // The protocol requires an id in every answer; the task's id is the most useful one in logs.
    let id = id.unwrap_or(task);
    let (queue, model) = (spans.queue, spans.compute_infer);
    let ran = place.clone().map(|place| Ran { place, queue, model });
    let answer = Answer { entry, id, choice, outputs, ran };
    let encoded = written(answer, encode, steps).await?;
    if let (Some(turn), Some(states)) = (turn, states) {
        turn.done(states).await?;
    }
    if let Some((shadow, answered)) = copy {
        shadow::cast(state, shadow, answered);
    }
    let spans = Spans { compute_output: lap(&mut clock), ..spans };
    Ok(Served { encoded, spans, work: Some(work), place })
}

/// Adds the cache key of the answer, if the model's answers are cached.
async fn identified(
    entry: &ModelEntry,
    request: InferRequest,
) -> Result<(InferRequest, Option<cache::Key>), Fault> {
    if entry.cache().is_none() {
        return Ok((request, None));
    }
    let model = entry.model().clone();
    let hashed = request.inputs.tensors.iter().map(|input| input.tensor.packed_len()).sum();
    off_loop(hashed, move || {
        let key = cache::key(&model, &request.inputs.tensors);
        Ok((request, Some(key)))
    })
    .await
}

/// Runs a model as a task, or an ensemble as several; `id` is the client's id of the request.
async fn run(
    state: &ServerState,
    (named, entry): (&Named, &mut ModelEntry),
    (call, pending, steps): (&Call, &mut Pending, &mut Steps),
    (id, mut request): (Option<&str>, InferRequest),
) -> Result<Outcome, Fault> {
    match entry.ensemble().cloned() {
        None => task::run(state, (named, entry), (call, pending, steps), request).await,
        Some(ensemble) => {
            request.id = id.map(str::to_owned);
            task::run_all(state, (call, entry), &ensemble, request).await
        }
    }
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

fn lap(clock: &mut Instant) -> Duration {
    let now = Instant::now();
    let time = now - *clock;
    *clock = now;
    time
}

fn reason(fault: &Fault) -> FailureReason {
    match fault.code {
        faults::MODEL_FAILED => FailureReason::Backend,
        "cancelled" => FailureReason::Canceled,
        "internal" => FailureReason::Other,
        _ => FailureReason::Rejected,
    }
}
