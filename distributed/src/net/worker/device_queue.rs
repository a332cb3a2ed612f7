//! A device of a worker: the tasks that wait for it, in order, and the threads that run them, in
//! batches where that is wanted.

mod brief;
mod groups;
mod stage;

pub(super) use stage::Stage;

use crate::batching::Batching;
use crate::config::WorkerConfig;
use crate::executor::{ExecError, Executor, Stop};
use crate::net::outside;
use crate::proto::queue::{Place, aged};
use crate::run_trace::{NodeTime, RunTrace};
use crate::task::{ModelRef, Priority};
use groups::{Groups, Next, Rule};
use lgp_memory::NamedTensor;
use stage::Batch;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// The queues of a worker's devices, shared by all of its sessions: work of a lost session may
/// still be running when the next one begins.
pub(crate) type DeviceQueues = Arc<[Arc<DeviceQueue>]>;

/// A task that waits for a device.
pub(crate) struct Job {
    pub(crate) priority: Priority,
    pub(crate) model: ModelRef,
    /// The model's settings for batches.
    pub(crate) batching: Option<Box<Batching>>,
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) stage: Arc<Stage>,
    /// The room that large inputs take at the worker, until the job is done.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    /// Whether to report the times of the nodes of its run, or of its batch.
    pub(crate) traced: bool,
}

impl Job {
    /// Whether both can be one batch: the same model and batch settings, and inputs of the same
    /// names, types and shapes.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |(a, b): (&NamedTensor, &NamedTensor)| {
            let same_type = a.tensor.dtype() == b.tensor.dtype();
            a.name == b.name && same_type && a.tensor.shape() == b.tensor.shape()
        };
        self.model == other.model
            && self.batching == other.batching
            && self.inputs.len() == other.inputs.len()
            && self.inputs.iter().zip(&other.inputs).all(alike)
    }

    /// A hash that is equal for jobs that can be one batch, and for hardly any others.
    fn kind(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.model.hash(&mut hash);
        self.batching.hash(&mut hash);
        for input in &self.inputs {
            input.name.hash(&mut hash);
            input.tensor.dtype().name().hash(&mut hash);
            input.tensor.shape().dims().hash(&mut hash);
        }
        hash.finish()
    }
}

/// A task's outputs, or why there are none.
type Outputs = Result<Vec<NamedTensor>, ExecError>;

/// The outputs of each task of a run, and the times of the run's nodes.
type Told = (Vec<Outputs>, Vec<NodeTime>);

/// The outcome of a task.
pub(crate) struct Ran {
    pub(crate) result: Outputs,
    /// Time inside the executor, that of the whole batch.
    pub(crate) took: Duration,
    /// Tasks of the batch.
    pub(crate) batch: u32,
    /// Another task accounts for the run of all.
    pub(crate) joined: bool,
    /// When the run began.
    pub(crate) began: Instant,
    /// The times of its nodes, if the task is traced.
    pub(crate) nodes: Vec<NodeTime>,
}

/// A place in the queue, and the receiver of the outcome.
pub(crate) struct Ticket {
    place: Place,
    pub(crate) ran: oneshot::Receiver<Ran>,
}

struct Waiting {
    job: Job,
    kind: u64,
    answer: oneshot::Sender<Ran>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<Place, Waiting>,
    groups: Groups,
    /// Tasks that came so far.
    came: u64,
    /// Threads that may be started.
    free: usize,
    /// Threads that run nothing and are about to take something.
    taking: usize,
    /// By kind, how many of the last runs in a row were brief.
    brief: HashMap<u64, u32>,
}

/// A device's queue and its threads.
pub(crate) struct DeviceQueue {
    device: usize,
    executor: Arc<dyn Executor>,
    /// How tasks are batched if their model does not say.
    rule: Rule,
    opened: Instant,
    state: Mutex<State>,
    /// A task came while a thread waits for its batch to fill.
    arrival: Condvar,
}

impl DeviceQueue {
    pub(crate) fn new(device: usize, config: &WorkerConfig, executor: Arc<dyn Executor>) -> Self {
        let at_least_1 = |n: u32| usize::try_from(n).unwrap_or(usize::MAX).max(1);
        Self {
            device,
            executor,
            rule: Rule::new(config.batch_max, config.batch_delay),
            opened: Instant::now(),
            state: Mutex::new(State { free: at_least_1(config.slots), ..State::default() }),
            arrival: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rule_of(&self, job: &Job) -> Rule {
        let own = job.batching.as_deref().map(Rule::of);
        own.unwrap_or_else(|| self.rule.clone())
    }

    /// Puts a task into the queue.
    pub(crate) fn enter(self: &Arc<Self>, job: Job) -> Ticket {
        let (answer, ran) = oneshot::channel();
        let (came, kind) = (Instant::now(), job.kind());
        let mut state = self.lock();
        state.came += 1;
        // The order of the coordinator's queue: urgent tasks first, and none waits for ever.
        let place = Place::new(aged(came - self.opened, job.priority), state.came);
        let rule = self.rule_of(&job);
        state.groups.enter(kind, rule, place, came);
        state.waiting.insert(place, Waiting { job, kind, answer });
        self.staff(&mut state);
        if state.taking > 0 {
            self.arrival.notify_all();
        }
        Ticket { place, ran }
    }

    /// Removes a task that has not begun. False if it has begun: its result will come.
    pub(crate) fn leave(&self, ticket: &Ticket) -> bool {
        let mut state = self.lock();
        let Some(left) = state.waiting.remove(&ticket.place) else { return false };
        state.groups.leave(left.kind, &[ticket.place], Instant::now());
        // A thread may wait for more tasks for this batch.
        self.arrival.notify_all();
        true
    }

    /// Starts threads while there are more batches than threads about to take one.
    fn staff(self: &Arc<Self>, state: &mut State) {
        while state.free > 0 && state.taking < state.groups.batches() {
            state.free -= 1;
            state.taking += 1;
            let line = Arc::clone(self);
            outside::run_models(move || line.serve());
        }
    }

    /// A thread's life: batch after batch, as long as tasks wait.
    fn serve(self: Arc<Self>) {
        while let Some(batch) = self.next_batch() {
            self.run(batch);
            self.lock().taking += 1;
        }
    }

    fn next_batch(self: &Arc<Self>) -> Option<Vec<Waiting>> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let next = match self.executor.must_restart() {
                // What waits is given back, and runs elsewhere or in the next process.
                true => Next::End,
                false => state.groups.next(now),
            };
            match next {
                Next::Take(kind) => {
                    let batch = take(&mut state, kind, now);
                    state.taking -= 1;
                    self.staff(&mut state);
                    return Some(batch);
                }
                Next::Wait(wait) => {
                    let woken = self.arrival.wait_timeout(state, wait);
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                Next::End => {
                    state.taking -= 1;
                    state.free += 1;
                    return None;
                }
            }
        }
    }

    fn run(&self, batch: Vec<Waiting>) {
        let Some(first) = batch.first() else { return };
        let (model, kind) = (first.job.model.clone(), first.kind);
        let (mut inputs, mut stages) = (Vec::new(), Vec::new());
        let (mut answers, mut rooms) = (Vec::new(), Vec::new());
        let is_traced = batch.iter().any(|waiting| waiting.job.traced);
        for Waiting { job, answer, .. } in batch {
            inputs.push(job.inputs);
            stages.push(job.stage);
            rooms.push(job.room);
            answers.push((answer, job.traced));
        }
        let began = Instant::now();
        let (results, mut nodes) = match (inputs.as_slice(), stages.as_slice()) {
            ([one], [stage]) => {
                let (result, nodes) = self.execute(&model, one, stage.stopping(), is_traced);
                (vec![result], nodes)
            }
            (many, stages) => self.execute_batch(&model, many, stages, is_traced),
        };
        let took = began.elapsed();
        if !is_traced {
            self.lock().learn(kind, took);
        }
        RunTrace::shorten(&mut nodes);
        drop((inputs, rooms));
        let batch = u32::try_from(answers.len()).unwrap_or(u32::MAX);
        // The first task whose answer is wanted accounts for the run of all.
        let first = stages.iter().position(|stage| stage.is_wanted()).unwrap_or_default();
        for (at, ((answer, traced), result)) in answers.into_iter().zip(results).enumerate() {
            // The receiver may be gone.
            let (joined, nodes) = (at != first, if traced { nodes.clone() } else { Vec::new() });
            let _ = answer.send(Ran { result, took, batch, joined, began, nodes });
        }
    }

    /// The executor's results for one or more tasks, and the nodes' times if traced; an error where it
    /// panicked. What the executor leaves behind by a panic is its own affair, as on a thread that ends.
    fn call(
        &self,
        model: &ModelRef,
        inputs: &[Vec<NamedTensor>],
        stop: &Stop,
        traced: bool,
    ) -> Result<Told, ExecError> {
        let (device, executor) = (self.device, &self.executor);
        let run = AssertUnwindSafe(|| match inputs {
            all if traced => executor.execute_traced(device, model, all, stop),
            [one] => (vec![executor.execute(device, model, one, stop)], Vec::new()),
            many => (executor.execute_batch(device, model, many, stop), Vec::new()),
        });
        let (results, nodes) = catch_unwind(run).map_err(|payload| panicked(&*payload))?;
        let (given, expected) = (results.len(), inputs.len());
        if given == expected {
            return Ok((results, nodes));
        }
        let error = format!("the executor gave {given} results for {expected} tasks");
        let error = ExecError::failed(error);
        Ok((inputs.iter().map(|_| Err(error.clone())).collect(), Vec::new()))
    }

    fn execute(
        &self,
        model: &ModelRef,
        inputs: &Vec<NamedTensor>,
        stop: &Stop,
        traced: bool,
    ) -> (Outputs, Vec<NodeTime>) {
        if stop.is_stopped() {
            let stopped = ExecError::stopped("the run was stopped before it began");
            return (Err(stopped), Vec::new());
        }
        match self.call(model, std::slice::from_ref(inputs), stop, traced) {
            Ok((mut results, nodes)) => {
                let none = || Err(ExecError::failed("the executor gave no result"));
                (results.pop().unwrap_or_else(none), nodes)
            }
            Err(error) => (Err(error), Vec::new()),
        }
    }

    fn execute_batch(
        &self,
        model: &ModelRef,
        inputs: &[Vec<NamedTensor>],
        stages: &[Arc<Stage>],
        traced: bool,
    ) -> Told {
        let batch = Batch::of(stages);
        self.call(model, inputs, batch.stopping(), traced).unwrap_or_else(|_| {
            // One task is to blame for the panic: run each alone, so that the others succeed.
            let each = inputs.iter().zip(stages);
            let one = |(inputs, stage): (_, &Arc<Stage>)| {
                self.execute(model, inputs, stage.stopping(), false).0
            };
            (each.map(one).collect(), Vec::new())
        })
    }
}

/// Takes the first task of a group and the tasks like it, in their order, up to a batch.
fn take(state: &mut State, kind: u64, now: Instant) -> Vec<Waiting> {
    let (mut places, size) = state.groups.batch(kind);
    let first = places.next().and_then(|place| Some((place, state.waiting.get(&place)?)));
    let Some((place, first)) = first else { return Vec::new() };
    let is_like =
        |place: &Place| state.waiting.get(place).is_some_and(|other| other.job.is_like(&first.job));
    let like = places.filter(is_like).take(size.saturating_sub(1));
    let places: Vec<Place> = std::iter::once(place).chain(like).collect();
    state.groups.leave(kind, &places, now);
    let batch = places.iter().filter_map(|place| state.waiting.remove(place));
    batch.inspect(|taken| taken.job.stage.begin()).collect()
}

fn panicked(payload: &(dyn Any + Send)) -> ExecError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    ExecError::failed(format!("the executor did not finish: it panicked: {}", text.unwrap_or("?")))
}

#[cfg(test)]
mod tests;
