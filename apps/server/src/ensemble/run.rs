//! Runs the steps of one request: each step starts as soon as its inputs are available.

use super::draft::{Step, Work};
use super::file::ModelName;
use super::held::{Held, Total};
use super::plan::{Ensemble, label};
use super::steps::{BuiltIn, Given, Joint};
use super::value::Value;
use crate::call::Call;
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip::{self, Given as Request, InferRequest};
use crate::state::ServerState;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lgp_sdk::cluster::Priority;
use lgp_sdk::tensor::NamedTensor;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than any caller waits.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The result of a request.
pub(crate) struct Ran {
    /// The outputs, in their order.
    pub(crate) outputs: Vec<NamedTensor>,
    /// The id of a task that the request ran.
    pub(crate) task: Option<String>,
}

/// State that all steps of a request share.
struct Shared<'a> {
    state: &'a ServerState,
    call: &'a Call,
    entry: &'a ModelEntry,
    ensemble: Arc<Ensemble>,
    id: Option<String>,
    priority: Priority,
    deadline: Instant,
    /// Bytes of the room for bodies that the request's values hold.
    total: Total,
}

/// The result of one step.
struct Done {
    values: Vec<(String, Value)>,
    task: Option<String>,
    held: Option<Arc<Held>>,
}

/// The inputs of a step.
struct Read {
    given: Given<Value>,
    /// Held until the step has read them.
    rooms: Vec<Arc<Held>>,
}

/// An available value, and the room that it holds.
type There = (Value, Option<Arc<Held>>);

/// Runs an ensemble. The first step that fails, the deadline, and a disconnecting caller end all running steps.
pub(crate) fn run<'a>(
    state: &'a ServerState,
    (call, entry): (&'a Call, &'a ModelEntry),
    ensemble: Arc<Ensemble>,
    mut request: InferRequest,
) -> BoxFuture<'a, Result<Ran, Fault>> {
    let longest = state.config().deadline_max();
    let limit = request.timeout.map_or(longest, |timeout| timeout.min(longest));
    let now = Instant::now();
    // If the clock cannot represent the deadline, it is `NEVER`.
    let deadline = now.checked_add(limit).unwrap_or(now + NEVER);
    let (id, priority) = (request.id.take(), request.priority);
    let total = Total::default();
    let shared = Shared { state, call, entry, ensemble, id, priority, deadline, total };
    Box::pin(async move {
        let running = shared.all(request);
        tokio::time::timeout_at(deadline, running).await.unwrap_or_else(|_| {
            let (name, ms) = (entry.name(), limit.as_millis());
            let message = format!("ensemble '{name}' did not end within {ms} ms");
            Err(Fault::unavailable("deadline_exceeded", message))
        })
    })
}

impl Shared<'_> {
    async fn all(&self, request: InferRequest) -> Result<Ran, Fault> {
        let tensors = request.inputs.tensors.into_iter();
        let tensors = tensors.map(|input| (input.name, Value::Tensor(input.tensor)));
        let blobs = request.inputs.blobs.into_iter();
        let blobs = blobs.map(|blobs| (blobs.name.clone(), Value::Blobs(Arc::new(blobs))));
        let all = tensors.chain(blobs).map(|(name, value)| (name, (value, None)));
        let mut values: HashMap<String, There> = all.collect();
        let mut waiting: Vec<&Step> = self.ensemble.steps.iter().collect();
        let mut running = FuturesUnordered::new();
        let mut task = None;
        loop {
            let ready = |step: &&Step| step.inputs.values().all(|value| values.contains_key(value));
            let (now, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(ready);
            waiting = later;
            for step in now {
                running.push(self.step(step, self.given(step, &values)));
            }
            // A value that no step reads any more is dropped, and its room with the last step that reads it now.
            values.retain(|value, _| {
                let is_read = |step: &&Step| step.inputs.values().any(|read| read == value);
                waiting.iter().any(is_read) || self.ensemble.answered.contains(value)
            });
            let Some(done) = running.next().await else { break };
            let done: Done = done?;
            let held = done.held;
            let made = done.values.into_iter();
            values.extend(made.map(|(name, value)| (name, (value, held.clone()))));
            task = task.or(done.task);
        }
        Ok(Ran { outputs: self.outputs(values).await?, task })
    }

    /// The inputs of a step, and the room that they hold.
    fn given(&self, step: &Step, values: &HashMap<String, There>) -> Read {
        let mut rooms = Vec::new();
        let mut joint = |(port, value): (&String, &String)| {
            let label = label(self.ensemble.inputs(), value);
            let (found, held) = values.get(value)?;
            rooms.extend(held.clone());
            Some(Joint { port: port.clone(), label, value: found.clone() })
        };
        let given = Given(step.inputs.iter().filter_map(&mut joint).collect());
        Read { given, rooms }
    }

    /// The outputs of the request. Images become tensors, each a copy.
    async fn outputs(&self, values: HashMap<String, There>) -> Result<Vec<NamedTensor>, Fault> {
        let specs = self.ensemble.outputs().iter().zip(&self.ensemble.answered);
        let output = |(spec, value): (&lgp_sdk::model::ValueSpec, &String)| {
            let made = values.get(value);
            let made = made.ok_or_else(|| Fault::internal("a step made less than was checked"))?;
            Ok((spec.name.clone(), made.0.clone()))
        };
        let all = specs.map(output).collect::<Result<Vec<_>, Fault>>()?;
        let copied = all.iter().map(|(_, value)| value.copied_bytes()).sum();
        let held = Held::take((self.state, self.call.caller()), &self.total, copied).await?;
        oip::off_loop(copied, move || {
            // Both are held until the copies are made.
            let (_values, _held) = (values, held);
            let output =
                |(name, value): (String, Value)| Ok(NamedTensor::new(name, value.tensor()?));
            all.into_iter().map(output).collect()
        })
        .await
    }

    async fn step(&self, step: &Step, read: Read) -> Result<Done, Fault> {
        let done = match &step.work {
            Work::BuiltIn(work) => self.built_in(work, step, read).await,
            Work::Model(model) => self.model(model, step, read).await,
        };
        done.map_err(|mut fault| {
            fault.message = format!("{} of '{}': {}", step.title, self.entry.name(), fault.message);
            fault
        })
    }

    async fn built_in(
        &self,
        work: &Arc<dyn BuiltIn>,
        step: &Step,
        Read { given, rooms }: Read,
    ) -> Result<Done, Fault> {
        let labels = match work.labels() {
            None => None,
            Some(model) => {
                let named = self.state.catalog().named(&model.name, model.version).await?;
                Some(named.entry().clone())
            }
        };
        let bytes = given.0.iter().map(|joint| joint.value.bytes()).sum();
        let bytes = if work.is_slow() { oip::LARGE_BYTES } else { bytes };
        let judge = Arc::clone(work);
        let judging = oip::off_loop(bytes, move || Ok((judge.room(&given)?, given)));
        let (wanted, given) = judging.await?;
        let held = Held::take((self.state, self.call.caller()), &self.total, wanted).await?;
        let work = Arc::clone(work);
        // The room is held until the work ends, even if the caller is gone.
        let running = oip::off_loop(bytes.max(wanted), move || {
            let labels = labels.as_ref().map(ModelEntry::labels).unwrap_or_default();
            let made = work.run(given, labels)?;
            drop(rooms);
            Ok((made, held))
        });
        let (mut made, mut held) = running.await?;
        let value = |(port, value): (&String, &String)| {
            let at = made.iter().position(|(known, _)| known == port);
            let at = at.ok_or_else(|| Fault::internal("a step made less than was checked"))?;
            Ok((value.clone(), made.swap_remove(at).1))
        };
        let values = step.outputs.iter().map(value).collect::<Result<Vec<_>, Fault>>()?;
        held.shrink(self.state, values.iter().map(|(_, value)| value.bytes()).sum());
        Ok(Done { values, task: None, held: Some(Arc::new(held)) })
    }

    async fn model(
        &self,
        model: &ModelName,
        step: &Step,
        Read { given, rooms: _rooms }: Read,
    ) -> Result<Done, Fault> {
        let named = self.state.catalog().named(&model.name, model.version).await?;
        let bytes = given.0.iter().map(|joint| joint.value.bytes()).sum();
        let copied = given.0.iter().map(|joint| joint.value.copied_bytes()).sum();
        // Held until the model has answered.
        let _copies = Held::take((self.state, self.call.caller()), &self.total, copied).await?;
        let (id, priority, deadline) = (self.id.clone(), self.priority, self.deadline);
        let decode = move |entry: &ModelEntry| {
            let input =
                |joint: Joint<Value>| Ok(NamedTensor::new(joint.port, joint.value.tensor()?));
            let inputs = given.0.into_iter().map(input).collect::<Result<Vec<_>, Fault>>()?;
            oip::check_inputs(entry.inputs(), &inputs)?;
            let given = Request { id, inputs: inputs.into(), ..Request::default() };
            let mut request = InferRequest::new(given, None, entry.outputs())?;
            request.priority = priority;
            request.timeout = Some(deadline.saturating_duration_since(Instant::now()));
            request.is_step = true;
            Ok(request)
        };
        let answer =
            oip::serve(self.state, (&self.call.within(), &named), (bytes, decode), Ok).await?;
        let value = |(port, value): (&String, &String)| {
            let found = answer.outputs.iter().find(|output| output.name == *port);
            let found = found.ok_or_else(|| {
                Fault::internal(format!("model '{model}' did not answer its output '{port}'"))
            })?;
            Ok((value.clone(), Value::Tensor(found.tensor.clone())))
        };
        let values = step.outputs.iter().map(value).collect::<Result<_, Fault>>()?;
        Ok(Done { values, task: Some(answer.id), held: None })
    }
}
