//! What the core is made of: its settings, its tasks, its timers, and what it wants done.

use crate::executor::ExecError;
use crate::proto::balance::Balance;
use crate::proto::message::AttemptId;
use crate::proto::queue::Place;
use crate::task::{ModelRef, Priority, TaskError, TaskSpec, TaskState};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::time::Duration;

/// A connection of a worker. A worker that comes back gets a new one.
pub(crate) type SessionId = u64;

/// SHA-256 of what makes two requests the same.
pub(crate) type Digest = [u8; 32];

/// Settings of the core.
#[derive(Clone)]
pub(crate) struct CoreConfig {
    pub(crate) epoch: u64,
    pub(crate) balancing: &'static dyn Balance,
    pub(crate) queue_tasks_max: usize,
    pub(crate) queue_bytes_max: usize,
    pub(crate) retained_tasks_max: usize,
    pub(crate) retained_bytes_max: usize,
    pub(crate) timing: Timing,
}

/// The time constants of failure detection and retry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timing {
    /// Interval of heartbeats.
    pub(crate) heartbeat: Duration,
    /// Silence after which a worker gets no new tasks.
    pub(crate) suspect_after: Duration,
    /// Silence after which its tasks are given to others. With the interval at which silence
    /// is checked (half a heartbeat) this stays within 2 s.
    pub(crate) lost_after: Duration,
    /// Time since its dispatch, or since the last heartbeat that named it, after which an attempt
    /// that its worker does not report to hold counts as lost.
    pub(crate) lease: Duration,
    /// First ceiling of the wait before another attempt, doubling up to `retry_max`.
    pub(crate) retry_base: Duration,
    pub(crate) retry_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            suspect_after: Duration::from_millis(1_100),
            lost_after: Duration::from_millis(1_700),
            lease: Duration::from_secs(10),
            retry_base: Duration::from_millis(50),
            retry_max: Duration::from_secs(2),
        }
    }
}

/// What the core wants done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Hand an attempt to a worker.
    Dispatch {
        session: SessionId,
        id: AttemptId,
        spec: Arc<TaskSpec>,
    },
    /// Nobody wants the attempt's answer any more.
    Cancel {
        session: SessionId,
        id: AttemptId,
    },
    /// The task reached its terminal state; its record stays at least until the next event.
    Finished {
        seq: u64,
    },
    Load {
        session: SessionId,
        model: ModelRef,
    },
    Unload {
        session: SessionId,
        model: ModelRef,
    },
    /// Ask the worker to finish what it holds and leave.
    Drain {
        session: SessionId,
    },
    /// Close the connection: the worker wanted to leave and holds nothing any more.
    Dismiss {
        session: SessionId,
    },
    /// Close the connection: another one of the same worker took its place.
    Supersede {
        session: SessionId,
    },
    /// Close the connection: the worker has been silent for too long.
    Abandon {
        session: SessionId,
    },
    /// Workers or models changed, or the last task finished: waiters may look again.
    Changed,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub(crate) enum Completion {
    Done {
        outputs: Vec<NamedTensor>,
        model: Duration,
    },
    Error {
        error: ExecError,
        model: Duration,
    },
    /// The worker was leaving and did not begin.
    Refused,
    /// The stream broke while the connection lives.
    Broken {
        reason: String,
    },
}

/// A task as the core keeps it.
#[derive(Debug)]
pub(super) struct Task {
    /// Gone once the task is terminal.
    pub(super) spec: Option<Arc<TaskSpec>>,
    pub(super) model: ModelRef,
    pub(super) priority: Priority,
    pub(super) state: TaskState,
    pub(super) input_bytes: usize,
    pub(super) submitted: Duration,
    pub(super) deadline: Option<Duration>,
    /// When the next attempt may begin, while the task waits for that.
    pub(super) retry_at: Option<Duration>,
    /// Attempts begun, and attempts that ended without an answer.
    pub(super) attempts: u32,
    pub(super) failures: u32,
    /// The session that runs the current attempt.
    pub(super) session: Option<SessionId>,
    pub(super) worker: Option<WorkerId>,
    /// Time from submission to the last dispatch; `None` while it waits.
    pub(super) queued: Option<Duration>,
    pub(super) model_time: Option<Duration>,
    pub(super) finished: Option<Duration>,
    pub(super) outputs: Option<Vec<NamedTensor>>,
    pub(super) error: Option<TaskError>,
    pub(super) key: Option<String>,
}

impl Task {
    pub(super) fn place(&self, seq: u64) -> Place {
        Place::new(self.submitted, self.priority, seq)
    }
}

/// Something that is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Deadline(u64),
    Retry(u64),
    Membership,
}

/// Faults that tests plant to see that the simulation catches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(dead_code, reason = "planted by tests only")]
pub(crate) enum Planted {
    #[default]
    Nothing,
    /// Completions of attempts that are no longer current are accepted.
    AcceptStale,
    /// Tasks of a lost worker are not redone.
    ForgetLost,
    /// Workers get more than their slots hold.
    IgnoreSlots,
}
