//! Tasks as callers see them: their requests, states, records and errors.

mod error;
mod id;
mod model;

pub use error::{TaskError, TaskErrorKind};
pub use id::{TaskId, TaskState};
pub use model::ModelRef;

use crate::attempt::AttemptRecord;
use crate::error::Error;
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The urgency of a task. Waiting tasks age, so even background tasks get their turn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it, most urgent first")]
pub enum Priority {
    Critical,
    High,
    #[default]
    Normal,
    Low,
    Background,
}

impl Priority {
    /// Every priority, most urgent first.
    pub const ALL: [Self; 5] =
        [Self::Critical, Self::High, Self::Normal, Self::Low, Self::Background];

    /// 0 for the most urgent.
    pub(crate) const fn level(self) -> u32 {
        match self {
            Self::Critical => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
            Self::Background => 4,
        }
    }

    /// The name as it is written in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Priority {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| Error::Parse {
            what: "priority",
            given: text.chars().take(64).collect(),
            expected: "critical, high, normal, low or background",
        })
    }
}

/// A request to run a model once.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// The model.
    pub model: ModelRef,
    /// Its inputs by name; cloning a tensor shares its bytes.
    pub inputs: Vec<NamedTensor>,
    /// Urgency.
    pub priority: Priority,
    /// Time from submission after which the task fails with
    /// [`TaskErrorKind::DeadlineExceeded`].
    pub deadline: Option<Duration>,
    /// The same key with the same body returns the same task while its record is kept.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the part of the request that must match when the key is used again, if that is
    /// not the whole task: the names in a request may stand for another model or tensor by the time
    /// it is repeated.
    pub request_digest: Option<[u8; 32]>,
    /// Attempts that may end without an answer (worker lost, device unavailable) before the
    /// task fails; at least 1.
    pub max_attempts: u32,
    /// Whether the task survives the coordinator: it is accepted, and ends, only once the journal
    /// has recorded that.
    pub durable: bool,
    /// Tasks that must have succeeded before this one runs. When one of them fails or is cancelled,
    /// this task fails with [`TaskErrorKind::DependencyFailed`].
    pub depends_on: Vec<TaskId>,
    /// Tasks of one model with the same key go to the same device while it is healthy and not much
    /// busier than others, so that a conversation finds its caches.
    pub affinity: Option<String>,
    /// Time after which an attempt without an answer is hedged by a second attempt on another
    /// worker. The first answer counts.
    pub hedge_after: Option<Duration>,
    /// Time limit of one run, from the moment a thread begins it. A longer run is asked to stop and
    /// counts as a failed attempt. `None` uses the limit of the model or of the coordinator's
    /// settings.
    pub run_limit: Option<Duration>,
    /// Waits between attempts, instead of the coordinator's defaults.
    pub backoff: Option<Backoff>,
    /// Whether the worker reports the nodes of the run, for
    /// [`Coordinator::run_trace`](crate::Coordinator::run_trace). A run on a device then takes
    /// longer for all tasks of its batch, because it is measured node by node. A task with a time
    /// limit on its runs (its own, its model's or the settings') is not traced.
    pub traced: bool,
}

/// Waits between attempts that ended without an answer. Each wait is random, up to a ceiling that
/// starts at `base` and doubles up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the line above says it")]
pub struct Backoff {
    pub base: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The waits if [`TaskSpec::backoff`] is not set.
    pub const DEFAULT: Self = Self { base: Duration::from_millis(50), max: Duration::from_secs(2) };
}

/// The filter of a page of tasks.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TaskFilter {
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks of models with this name.
    pub model: Option<String>,
    /// Only tasks of this version of the model.
    pub version: Option<u64>,
    /// At most this many tasks.
    pub limit: usize,
    /// Only tasks submitted before this one.
    pub after: Option<TaskId>,
}

impl TaskFilter {
    /// The most tasks on a page.
    pub const LIMIT_MAX: usize = 1_000;
}

impl Default for TaskFilter {
    fn default() -> Self {
        let (state, model, version, after) = (None, None, None, None);
        Self { state, model, version, limit: Self::LIMIT_MAX, after }
    }
}

/// Tasks without their outputs, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// The task after which the next page starts, if there may be one.
    pub next: Option<TaskId>,
}

impl TaskPage {
    /// Merges two pages, the newest task first.
    pub(crate) fn merge(one: Self, other: Self, limit: usize) -> Self {
        let more = one.next.is_some() || other.next.is_some();
        let mut tasks = one.tasks;
        tasks.extend(other.tasks);
        tasks.sort_by_key(|task| std::cmp::Reverse(task.task_id.seq));
        tasks.dedup_by_key(|task| task.task_id);
        let more = more || tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks.last().map(|task| task.task_id).filter(|_| more);
        Self { tasks, next }
    }
}

impl TaskSpec {
    /// The number of attempts if [`TaskSpec::max_attempts`] is not changed.
    pub const DEFAULT_MAX_ATTEMPTS: u32 = 5;

    /// A task of normal priority without a deadline or a key.
    #[must_use]
    pub fn new(model: ModelRef, inputs: Vec<NamedTensor>) -> Self {
        Self {
            model,
            inputs,
            priority: Priority::default(),
            deadline: None,
            idempotency_key: None,
            request_digest: None,
            max_attempts: Self::DEFAULT_MAX_ATTEMPTS,
            durable: false,
            depends_on: Vec::new(),
            affinity: None,
            hedge_after: None,
            run_limit: None,
            backoff: None,
            traced: false,
        }
    }
}

/// The state and the result of a task. Times are in milliseconds.
///
/// For a finished task `queued_ms + model_ms + overhead_ms` is its latency, from `submit` to the
/// terminal state. A succeeded task has all three; a failed or cancelled task has those that were
/// measured.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// The task.
    pub task_id: TaskId,
    /// Its model.
    pub model: ModelRef,
    /// Its urgency.
    pub priority: Priority,
    /// Whether it survives the coordinator.
    pub durable: bool,
    /// Tasks that it waited or waits for.
    pub depends_on: Vec<TaskId>,
    /// Its present state.
    pub state: TaskState,
    /// Attempts handed to workers so far.
    pub attempts: u32,
    /// The worker of the last attempt.
    pub worker: Option<WorkerId>,
    /// The device of that worker. This and [`tries`](Self::tries) are known only at the
    /// coordinator, and only while it keeps the task in memory.
    pub device: Option<Arc<str>>,
    /// The attempts, in the order in which they were sent. If there are very many, some in the
    /// middle are omitted.
    pub tries: Vec<AttemptRecord>,
    /// The variant of its model that the last attempt ran, if it was not the model itself.
    pub variant: Option<ModelRef>,
    /// The model's outputs, once succeeded.
    pub outputs: Option<Vec<NamedTensor>>,
    /// Why it failed or was cancelled.
    pub error: Option<TaskError>,
    /// Time from submission to the last dispatch, earlier attempts included. For a queued task, the
    /// time so far.
    pub queued_ms: f64,
    /// Time inside [`Executor::execute`](crate::Executor::execute), measured at the worker.
    pub model_ms: Option<f64>,
    /// The rest of the latency: wire, framing, scheduling. Never negative.
    pub overhead_ms: Option<f64>,
}
