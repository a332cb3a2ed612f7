//! The coordinator's state and the events that callers cause.

use crate::error::{Error, Result};
use crate::proto::affinity::Affinity;
use crate::proto::balance::Balance;
use crate::proto::budget::Budget;
use crate::proto::capability::Capabilities;
use crate::proto::durable::Ledger;
use crate::proto::fleet::{Fleet, SeatId, Worker};
use crate::proto::history::History;
use crate::proto::message::AttemptId;
use crate::proto::models::Wanted;
use crate::proto::queue::Queue;
use crate::proto::state::{Action, CoreConfig, Digest, Planted, SessionId, Task, Timer};
use crate::task::{ModelRef, TaskError, TaskErrorKind, TaskId, TaskRecord, TaskState};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// The coordinator without its network.
pub(crate) struct Core {
    pub(super) config: CoreConfig,
    pub(super) rng: Xoshiro256PlusPlus,
    /// Boxed: whole tasks would be moved whenever a node of the map is split or shifted.
    pub(super) tasks: BTreeMap<u64, Box<Task>>,
    pub(super) next_seq: u64,
    pub(super) queue: Queue,
    /// Bytes of the inputs of tasks that do not run.
    pub(super) queued_bytes: usize,
    pub(super) fleet: Fleet,
    pub(super) capabilities: Capabilities,
    pub(super) affinity: Affinity,
    pub(super) budget: Budget,
    pub(super) next_session: SessionId,
    pub(super) dispatches: u64,
    /// Models that the cluster is to have.
    pub(super) models: BTreeMap<ModelRef, Wanted>,
    /// When background attempts may be asked back again.
    pub(super) next_recall: Duration,
    /// Devices on which models leave for another.
    pub(super) moving: BTreeSet<SeatId>,
    pub(super) timers: BTreeSet<(Duration, Timer)>,
    /// Tasks that are terminal and whose dependants do not know it yet.
    pub(super) settled: VecDeque<u64>,
    /// Tasks that wait for the retry budget.
    pub(super) parked: VecDeque<u64>,
    pub(super) keys: HashMap<String, (u64, Digest)>,
    pub(super) history: History,
    pub(super) ledger: Ledger,
    pub(super) actions: VecDeque<Action>,
    pub(super) draining: bool,
    pub(super) stopped: bool,
    pub(crate) planted: Planted,
}

impl Core {
    /// An empty coordinator; `seed` feeds the jitter of retries.
    pub(crate) fn new(now: Duration, config: CoreConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            tasks: BTreeMap::new(),
            next_seq: 1,
            queue: Queue::default(),
            queued_bytes: 0,
            fleet: Fleet::default(),
            capabilities: Capabilities::default(),
            affinity: Affinity::default(),
            budget: Budget::new(now),
            next_session: 1,
            dispatches: 0,
            models: BTreeMap::new(),
            next_recall: Duration::ZERO,
            moving: BTreeSet::new(),
            timers: BTreeSet::new(),
            settled: VecDeque::new(),
            parked: VecDeque::new(),
            keys: HashMap::new(),
            history: History::new(now),
            ledger: Ledger::default(),
            actions: VecDeque::new(),
            draining: false,
            stopped: false,
            planted: Planted::Nothing,
        }
    }

    /// Cancels a task; one that is terminal stays as it is.
    pub(crate) fn cancel(&mut self, now: Duration, id: TaskId) -> Result<TaskRecord> {
        let seq = self.find(id)?;
        let error = TaskError::new(TaskErrorKind::Cancelled, "cancelled by a caller");
        self.abort(now, seq, TaskState::Cancelled, error);
        self.schedule(now);
        self.record(now, id)
    }

    /// Ends a task early, wherever it is; its attempts keep their slots until the workers let go.
    pub(super) fn abort(&mut self, now: Duration, seq: u64, state: TaskState, error: TaskError) {
        if self.tasks.get(&seq).is_some_and(|task| !task.has_ended()) {
            self.finish(now, seq, state, Err(error), None);
        }
    }

    /// Nobody waits for the answers of a task's attempts any more.
    pub(super) fn cancel_runs(&mut self, seq: u64) {
        let Some(task) = self.tasks.get_mut(&seq) else { return };
        let epoch = self.config.epoch;
        for run in std::mem::take(&mut task.runs) {
            let id = AttemptId { epoch, seq, attempt: run.attempt };
            self.actions.push_back(Action::Cancel { session: run.session, id });
        }
    }

    /// Lets time pass: deadlines, retries, silent workers.
    pub(crate) fn tick(&mut self, now: Duration) {
        while let Some((at, timer)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, timer));
                break;
            }
            match timer {
                Timer::Deadline(_) if self.planted == Planted::IgnoreDeadlines => {}
                Timer::Deadline(seq) => {
                    let error =
                        TaskError::new(TaskErrorKind::DeadlineExceeded, self.overdue(now, seq));
                    self.abort(now, seq, TaskState::Failed, error);
                }
                Timer::Retry(seq) => self.retry(now, seq),
                Timer::Budget => self.release_parked(now),
                Timer::Hedge(seq, attempt) => self.hedge(now, seq, attempt),
                Timer::Probe(session, model) => self.probe(now, session, &model),
                Timer::Journal => self.record_again(),
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
            _ if task.waits > 0 => format!("waiting for {} other tasks", task.waits),
            _ if !self.fleet.workers.values().any(Worker::is_ready) => {
                "waiting: no worker is ready".into()
            }
            _ => "waiting for a free worker".into(),
        };
        format!("the deadline passed after {ms} ms, while the task was {place}")
    }

    /// When [`Core::tick`] is to be called next, at the latest.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next thing to do. Records of finished tasks may go once this answered `None`.
    pub(crate) fn next_action(&mut self, now: Duration) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        self.evict(now);
        self.actions.pop_front()
    }

    /// Accepts no more tasks.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Fails everything that is neither terminal nor in the journal; nothing is accepted
    /// afterwards, and what is in the journal waits there for the next coordinator.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.stopped = true;
        let lost: Vec<u64> = self.open().filter(|seq| !self.is_durable(*seq)).collect();
        for seq in lost {
            let error = TaskError::new(TaskErrorKind::Stopped, "the coordinator stopped first");
            self.abort(now, seq, TaskState::Failed, error);
        }
    }

    /// Tasks that are not terminal.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> {
        self.tasks.iter().filter(|(_, t)| !t.state.is_terminal()).map(|(seq, _)| *seq)
    }

    /// Whether a task is known and not terminal.
    pub(crate) fn is_open(&self, id: TaskId) -> bool {
        let task = self.tasks.get(&id.seq).filter(|task| task.epoch == id.epoch);
        task.is_some_and(|task| !task.state.is_terminal())
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

    pub(super) fn find(&self, id: TaskId) -> Result<u64> {
        let known = self.tasks.get(&id.seq).is_some_and(|task| task.epoch == id.epoch);
        if known { Ok(id.seq) } else { Err(Error::UnknownTask { id: id.to_string() }) }
    }

    /// What became of a task so far.
    pub(crate) fn record(&self, now: Duration, id: TaskId) -> Result<TaskRecord> {
        let seq = self.find(id)?;
        let task = &self.tasks[&seq];
        Ok(TaskRecord { outputs: task.outputs.clone(), ..summary(now, seq, task) })
    }

    /// The same by number, for tasks that are known to be there.
    pub(crate) fn record_of(&self, now: Duration, seq: u64) -> Option<TaskRecord> {
        let task = self.tasks.get(&seq)?;
        Some(TaskRecord { outputs: task.outputs.clone(), ..summary(now, seq, task) })
    }

    /// Every known task without its outputs, newest first.
    pub(crate) fn records(&self, now: Duration) -> Vec<TaskRecord> {
        self.tasks.iter().rev().map(|(&seq, task)| summary(now, seq, task)).collect()
    }
}

fn summary(now: Duration, seq: u64, task: &Task) -> TaskRecord {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let queued = task.queued.unwrap_or_else(|| now.saturating_sub(task.submitted));
    TaskRecord {
        task_id: TaskId { epoch: task.epoch, seq },
        model: (*task.model).clone(),
        priority: task.priority,
        durable: task.durable,
        depends_on: task.depends_on.clone(),
        state: task.state,
        attempts: task.attempts,
        worker: task.worker.clone(),
        variant: task.variant.as_deref().cloned(),
        outputs: None,
        error: task.error.clone(),
        queued_ms: ms(queued),
        model_ms: task.model_time.map(ms),
        overhead_ms: task.overhead().map(ms),
    }
}
