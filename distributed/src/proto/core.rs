//! The coordinator's state and the events that callers cause.

use crate::error::{Error, Result};
use crate::proto::balance::Balance;
use crate::proto::history::History;
use crate::proto::membership::Worker;
use crate::proto::message::AttemptId;
use crate::proto::queue::Queue;
use crate::proto::state::{Action, CoreConfig, Digest, Planted, SessionId, Task, Timer};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The coordinator without its network.
pub(crate) struct Core {
    pub(super) config: CoreConfig,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) next_seq: u64,
    pub(super) queue: Queue,
    /// Sorted by id.
    pub(super) workers: Vec<Worker>,
    pub(super) next_session: SessionId,
    pub(super) dispatches: u64,
    /// Models that every worker is to have.
    pub(super) models: BTreeSet<ModelRef>,
    pub(super) timers: BTreeSet<(Duration, Timer)>,
    pub(super) keys: HashMap<String, (u64, Digest)>,
    pub(super) history: History,
    pub(super) actions: VecDeque<Action>,
    pub(super) draining: bool,
    pub(super) stopped: bool,
    pub(crate) planted: Planted,
}

impl Core {
    /// An empty coordinator; `seed` feeds the jitter of retries.
    pub(crate) fn new(config: CoreConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            tasks: BTreeMap::new(),
            next_seq: 1,
            queue: Queue::default(),
            workers: Vec::new(),
            next_session: 1,
            dispatches: 0,
            models: BTreeSet::new(),
            timers: BTreeSet::new(),
            keys: HashMap::new(),
            history: History::default(),
            actions: VecDeque::new(),
            draining: false,
            stopped: false,
            planted: Planted::Nothing,
        }
    }

    /// Accepts a task whose inputs take `input_bytes`. `digest` goes with an idempotency key.
    pub(crate) fn submit(
        &mut self,
        now: Duration,
        spec: Arc<TaskSpec>,
        input_bytes: usize,
        digest: Digest,
    ) -> Result<TaskId> {
        if let Some(key) = &spec.idempotency_key
            && let Some(&(seq, known)) = self.keys.get(key)
        {
            let existing = self.id(seq);
            return if known == digest {
                Ok(existing)
            } else {
                Err(Error::Conflict { key: key.clone(), existing })
            };
        }
        self.admit(now, input_bytes)?;
        let seq = self.next_seq;
        self.next_seq += 1;
        if let Some(key) = &spec.idempotency_key {
            self.keys.insert(key.clone(), (seq, digest));
        }
        // A deadline beyond the end of time is none.
        let deadline = spec.deadline.and_then(|d| now.checked_add(d));
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, Timer::Deadline(seq)));
        }
        let task = Task {
            model: spec.model.clone(),
            priority: spec.priority,
            state: TaskState::Queued,
            input_bytes,
            submitted: now,
            deadline,
            retry_at: None,
            attempts: 0,
            failures: 0,
            session: None,
            worker: None,
            queued: None,
            model_time: None,
            finished: None,
            outputs: None,
            error: None,
            key: spec.idempotency_key.clone(),
            spec: Some(spec),
        };
        self.queue.push(&task.model, task.place(seq), input_bytes);
        self.tasks.insert(seq, task);
        self.history.submitted += 1;
        self.schedule(now);
        Ok(self.id(seq))
    }

    fn admit(&mut self, now: Duration, input_bytes: usize) -> Result<()> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        if self.draining {
            return Err(Error::Draining);
        }
        let (queued, queued_bytes) = (self.queue.len(), self.queue.bytes());
        let full = queued >= self.config.queue_tasks_max
            || queued_bytes.saturating_add(input_bytes) > self.config.queue_bytes_max;
        // Whatever its size, a task is accepted by an empty queue: else it never would be.
        if full && queued > 0 {
            self.history.overloaded += 1;
            let retry_after = self.history.time_for(now, queued);
            return Err(Error::Overloaded { queued, queued_bytes, retry_after });
        }
        Ok(())
    }

    /// Cancels a task; one that is terminal stays as it is.
    pub(crate) fn cancel(&mut self, now: Duration, id: TaskId) -> Result<TaskRecord> {
        let seq = self.find(id)?;
        let error = TaskError::new(TaskErrorKind::Cancelled, "cancelled by a caller");
        self.abort(now, seq, TaskState::Cancelled, error);
        self.schedule(now);
        self.record(now, id)
    }

    /// Ends a task early, wherever it is; its attempt keeps its slot until the worker lets go.
    pub(super) fn abort(&mut self, now: Duration, seq: u64, state: TaskState, error: TaskError) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        match (task.state, task.session) {
            (TaskState::Queued, _) => {
                let (model, place) = (task.model.clone(), task.place(seq));
                if let Some(at) = task.retry_at.take() {
                    self.timers.remove(&(at, Timer::Retry(seq)));
                }
                self.queue.remove(&model, place);
            }
            (TaskState::Running, Some(session)) => {
                let id = AttemptId { epoch: self.config.epoch, seq, attempt: task.attempts };
                self.actions.push_back(Action::Cancel { session, id });
            }
            _ => return,
        }
        self.finish(now, seq, state, Err(error), None);
    }

    /// Lets time pass: deadlines, retries, silent workers.
    pub(crate) fn tick(&mut self, now: Duration) {
        while let Some(&(at, timer)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Deadline(seq) => {
                    let error =
                        TaskError::new(TaskErrorKind::DeadlineExceeded, self.overdue(now, seq));
                    self.abort(now, seq, TaskState::Failed, error);
                }
                Timer::Retry(seq) => self.requeue(seq),
                Timer::Membership => self.check_membership(now),
            }
        }
        self.schedule(now);
    }

    fn overdue(&self, now: Duration, seq: u64) -> String {
        let Some(task) = self.tasks.get(&seq) else { return String::new() };
        let ms = now.saturating_sub(task.submitted).as_millis();
        let place = match (task.state, &task.worker) {
            (TaskState::Running, Some(worker)) => format!("running on worker {worker}"),
            _ if !self.workers.iter().any(Worker::is_ready) => "waiting: no worker is ready".into(),
            _ => "waiting for a free worker".into(),
        };
        format!("the deadline passed after {ms} ms, while the task was {place}")
    }

    /// When [`Core::tick`] is to be called next, at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next thing to do. Records of finished tasks may go once this answered `None`.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() {
            self.evict();
        }
        action
    }

    /// Accepts no more tasks.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Fails everything that is not terminal; nothing is accepted afterwards.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.stopped = true;
        let open: Vec<u64> = self.open().collect();
        for seq in open {
            let error = TaskError::new(TaskErrorKind::Stopped, "the coordinator stopped first");
            self.abort(now, seq, TaskState::Failed, error);
        }
    }

    /// Tasks that are not terminal.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> {
        self.tasks.iter().filter(|(_, t)| !t.state.is_terminal()).map(|(seq, _)| *seq)
    }

    /// Whether every task is terminal.
    pub(crate) fn is_idle(&self) -> bool {
        self.history.open() == 0
    }

    pub(crate) fn balancing(&self) -> &'static str {
        self.config.balancing.name()
    }

    pub(crate) fn set_balancing(&mut self, strategy: &'static dyn Balance) {
        self.config.balancing = strategy;
    }

    pub(crate) fn id(&self, seq: u64) -> TaskId {
        TaskId { epoch: self.config.epoch, seq }
    }

    fn find(&self, id: TaskId) -> Result<u64> {
        if id.epoch == self.config.epoch && self.tasks.contains_key(&id.seq) {
            Ok(id.seq)
        } else {
            Err(Error::UnknownTask { id: id.to_string() })
        }
    }

    /// What became of a task so far.
    pub(crate) fn record(&self, now: Duration, id: TaskId) -> Result<TaskRecord> {
        let seq = self.find(id)?;
        let task = &self.tasks[&seq];
        Ok(TaskRecord { outputs: task.outputs.clone(), ..self.summary(now, seq, task) })
    }

    /// Every known task without its outputs, newest first.
    pub(crate) fn records(&self, now: Duration) -> Vec<TaskRecord> {
        self.tasks.iter().rev().map(|(&seq, task)| self.summary(now, seq, task)).collect()
    }

    fn summary(&self, now: Duration, seq: u64, task: &Task) -> TaskRecord {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let queued = task.queued.unwrap_or_else(|| now.saturating_sub(task.submitted));
        TaskRecord {
            task_id: self.id(seq),
            model: task.model.clone(),
            priority: task.priority,
            state: task.state,
            attempts: task.attempts,
            worker: task.worker.clone(),
            outputs: None,
            error: task.error.clone(),
            queued_ms: ms(queued),
            model_ms: task.model_time.map(ms),
            overhead_ms: task.overhead().map(ms),
        }
    }
}
