//! Runs an inference: as a task of the cluster, or as the steps of an ensemble.

use super::blobs::Inputs;
use super::request::InferRequest;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::ensemble::{self, Ensemble};
use crate::fault::Fault;
use crate::faults;
use crate::metrics::{Pending, Spans};
use crate::place::Place;
use crate::state::ServerState;
use crate::trace::{Ran, Steps};
use lgp_sdk::cluster::{Coordinator, Priority, TaskId, TaskRecord, TaskSpec};
use lgp_sdk::tensor::NamedTensor;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The result of a run.
pub(super) struct Outcome {
    pub(super) outputs: Vec<NamedTensor>,
    pub(super) spans: Spans,
    /// Runs of the model, including retries. A batched run counts for only one of its tasks.
    pub(super) executions: u32,
    /// Tasks in the run that answered, if the run counts for this one.
    pub(super) batch: Option<u64>,
    /// The id of the task.
    pub(super) task: String,
    pub(super) place: Option<Place>,
    /// Whether a variant answered instead of the model.
    pub(super) is_variant: bool,
}

impl Outcome {
    fn of(record: TaskRecord) -> Result<Self, Fault> {
        let spans = Spans {
            queue: millis(Some(record.queued_ms)),
            compute_infer: millis(record.model_ms),
            overhead: Some(millis(record.overhead_ms)),
            ..Spans::default()
        };
        let place = Place::of(&record);
        let joined = record.tries.iter().filter(|attempt| attempt.joined).count();
        let joined = u32::try_from(joined).unwrap_or(u32::MAX);
        let executions = record.attempts.saturating_sub(joined);
        let answered = record.tries.iter().find(|attempt| attempt.batch > 0 && !attempt.joined);
        let batch = answered.map(|attempt| u64::from(attempt.batch));
        let outputs = record.outputs;
        Ok(Self {
            outputs: outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))?,
            spans,
            executions,
            batch,
            task: record.task_id.to_string(),
            place,
            is_variant: record.variant.is_some(),
        })
    }
}

/// Rows of a request; 1 if its model has no rows.
pub(super) fn rows(entry: &ModelEntry, inputs: &Inputs) -> u64 {
    if !entry.has_rows() {
        return 1;
    }
    let tensors = inputs.tensors.iter().map(|input| input.tensor.shape().dims().first().copied());
    let blobs = inputs.blobs.iter().map(|input| input.shape.first().copied());
    let mut all = tensors.chain(blobs);
    let first = all.next().flatten();
    // If the lengths differ, the dimension does not count rows.
    let rows = first.filter(|_| all.all(|other| other == first));
    rows.map_or(1, |rows| u64::try_from(rows).unwrap_or(u64::MAX))
}

/// Moves a request's counters and steps to this model, which answers instead of the assumed one.
pub(super) fn is_of(
    entry: &ModelEntry,
    state: &ServerState,
    (call, pending, steps): (&Call, &mut Pending, &mut Steps),
) {
    if steps.model.model() != entry.model() {
        pending.moved(state.metrics().model(entry.name(), entry.version()));
        steps.model = entry.clone();
    }
    call.about(entry);
}

/// Runs the task to its end; cancels it if the client disconnects. If the model's version is
/// unloaded before the task begins, the name's present version runs it.
pub(super) async fn run(
    state: &ServerState,
    (named, entry): (&Named, &mut ModelEntry),
    (call, pending, steps): (&Call, &mut Pending, &mut Steps),
    request: InferRequest,
) -> Result<Outcome, Fault> {
    let (mut has_moved, began) = (false, Instant::now());
    let longest = state.config().deadline_max();
    let within = request.timeout.map_or(longest, |timeout| timeout.min(longest));
    loop {
        let mut spec = TaskSpec::new(entry.model().clone(), request.inputs.tensors.clone());
        let left = within.saturating_sub(began.elapsed());
        (spec.priority, spec.deadline) = (request.priority, Some(left));
        let fault = match submit(state, (call, &*entry, &mut *steps), spec).await {
            Ok(record) => {
                let outcome = Outcome::of(record)?;
                return Ok(Outcome { is_variant: has_moved || outcome.is_variant, ..outcome });
            }
            Err(fault) => fault,
        };
        if fault.code != faults::NOT_READY {
            return Err(fault);
        }
        *entry = state.catalog().successor(named, entry).await.ok_or(fault)?;
        is_of(entry, state, (call, &mut *pending, &mut *steps));
        has_moved = true;
    }
}

/// Runs the steps of an ensemble; its models are counted separately.
pub(super) async fn run_all(
    state: &ServerState,
    (call, entry): (&Call, &ModelEntry),
    ensemble: &Arc<Ensemble>,
    request: InferRequest,
) -> Result<Outcome, Fault> {
    let began = Instant::now();
    let ran = ensemble::run(state, (call, entry), Arc::clone(ensemble), request).await?;
    let spans = Spans { compute_infer: began.elapsed(), overhead: None, ..Spans::default() };
    let task = ran.task.unwrap_or_default();
    let (executions, batch, place, is_variant) = (1, Some(1), None, false);
    Ok(Outcome { outputs: ran.outputs, spans, executions, batch, task, place, is_variant })
}

/// Runs a model without a waiting client, within a time limit, and returns its outputs.
pub(crate) async fn run_in_background(
    state: &ServerState,
    entry: &ModelEntry,
    inputs: Vec<NamedTensor>,
    within: Duration,
) -> Result<Vec<NamedTensor>, Fault> {
    let mut spec = TaskSpec::new(entry.model().clone(), inputs);
    (spec.priority, spec.deadline) = (Priority::Background, Some(within));
    let (call, mut steps) = (Call::unseen(), Steps::begin(entry));
    let record = submit(state, (&call, entry, &mut steps), spec).await?;
    Ok(Outcome::of(record)?.outputs)
}

async fn submit(
    state: &ServerState,
    (call, entry, steps): (&Call, &ModelEntry, &mut Steps),
    mut spec: TaskSpec,
) -> Result<TaskRecord, Fault> {
    let longest = state.config().deadline_max();
    spec.deadline = Some(spec.deadline.map_or(longest, |deadline| deadline.min(longest)));
    let (coordinator, submitted) = (state.coordinator(), Instant::now());
    let is_kept = call.kept_trace().is_some();
    spec.traced = is_kept && state.tracing().tells_nodes(entry.model(), submitted);
    let teller = spec.traced.then_some(coordinator);
    // Hashing of large inputs precedes the task.
    let ids = coordinator.submit_all(vec![(spec, Vec::new())]).await.map_err(faults::cluster)?;
    let id = *ids.first().ok_or_else(|| Fault::internal("a task was accepted without an id"))?;
    call.runs(id);
    let mut guard = CancelOnDrop { coordinator, task: Some(id) };
    let record = tokio::select! {
        biased;
        record = coordinator.wait(id) => record.map_err(faults::cluster)?,
        // The task would wait until the model is loaded again, which is too long for its caller.
        fault = state.catalog().stranded(entry, id) => return Err(fault),
    };
    guard.task = None;
    steps.task = is_kept.then(|| Ran::of(&record, submitted, teller));
    match faults::task(&record) {
        Some(fault) => Err(fault),
        None => Ok(record),
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
            // If another coordinator took over the task, it runs to its end.
            tracing::debug!(%task, %error, "cannot cancel the task of a client that went away");
        }
    }
}

fn millis(ms: Option<f64>) -> Duration {
    Duration::try_from_secs_f64(ms.unwrap_or(0.0) / 1e3).unwrap_or_default()
}
