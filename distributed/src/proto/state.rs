//! The core's settings, the actions that it asks for, and how attempts end.

mod ids;

pub use ids::{Digest, SessionId};

use crate::executor::ExecError;
use crate::proto::balance::Balance;
use crate::proto::event::Event;
use crate::proto::image::Change;
use crate::proto::message::AttemptId;
use crate::proto::placement::HangTable;
use crate::task::{Backoff, ModelRef, TaskSpec};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the core.
#[derive(Clone)]
pub struct CoreConfig {
    pub epoch: u64,
    /// Number of the core's first task, where several coordinators take part at once, each with its
    /// own numbers; otherwise numbers continue after those in the journal.
    pub first_seq: Option<u64>,
    pub balancing: &'static dyn Balance,
    pub queue_tasks_max: usize,
    pub queue_bytes_max: usize,
    pub retention: RetentionLimits,
    /// Whether there is a journal for durable tasks.
    pub durable: bool,
    /// Milliseconds of completion time that a joule is worth to the adaptive strategy.
    pub thrift: f64,
    /// How long a run may take if neither its task nor its model says; `None` uses measured times.
    pub run_limit: Option<Duration>,
    pub timing: Timing,
}

/// Limits on what is kept of ended tasks.
#[derive(Debug, Clone, Copy)]
pub struct RetentionLimits {
    /// Most ended tasks whose whole records are in memory, and most bytes of these records.
    pub retained_tasks_max: usize,
    pub retained_bytes_max: usize,
    /// How long an idempotency key stands for its task after the task has ended, at least.
    pub keys_kept_for: Duration,
    /// How long results of durable tasks are kept, and at most how many bytes of them.
    pub results_kept_for: Duration,
    pub results_bytes_max: u64,
    /// Most results of durable tasks that are kept.
    pub results_max: usize,
    /// Bytes of outputs that the journal itself keeps with a task; longer outputs are files.
    pub outputs_inline_max: usize,
}

/// The time constants of failure detection and retry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a worker gets no new tasks.
    pub suspect_after: Duration,
    /// Silence after which the worker's tasks are given to others. With the interval at which
    /// silence is checked (half a heartbeat) this stays within 2 s.
    pub lost_after: Duration,
    /// An attempt that its worker does not report counts as lost after this time since its
    /// dispatch, or since the last heartbeat that named it.
    pub lease: Duration,
    /// Time for a run that was asked to stop; then its worker's process is replaced.
    pub stop_grace: Duration,
    /// First ceiling of the wait before another attempt, doubling up to `retry_max`.
    pub retry_base: Duration,
    pub retry_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            suspect_after: Duration::from_millis(1_100),
            lost_after: Duration::from_millis(1_700),
            lease: Duration::from_secs(10),
            stop_grace: Duration::from_secs(1),
            retry_base: Backoff::DEFAULT.base,
            retry_max: Backoff::DEFAULT.max,
        }
    }
}

/// An action that the core asks its owner to carry out.
#[derive(Debug)]
pub enum Action {
    /// Hand an attempt to a device of a worker.
    Dispatch {
        session: SessionId,
        device: u32,
        id: AttemptId,
        /// The model of the task, or a variant of it.
        model: Arc<ModelRef>,
        spec: Arc<TaskSpec>,
    },
    /// The attempt's answer is not wanted any more.
    Cancel {
        session: SessionId,
        id: AttemptId,
    },
    /// Ask the attempt's run to stop.
    Stop {
        session: SessionId,
        id: AttemptId,
    },
    /// End the worker's process, because a run of it does not stop, and start another in its place.
    Replace {
        session: SessionId,
        worker: WorkerId,
    },
    /// Remember how often runs on which devices did not stop.
    Hangs(HangTable),
    /// Have the worker refuse the attempt, if it has not begun.
    Recall {
        session: SessionId,
        id: AttemptId,
    },
    /// Write a change to the journal; the result comes back with the ticket.
    Record {
        ticket: u64,
        change: Change,
    },
    /// Keep outputs of an ended durable task apart from the journal; the result of that goes to
    /// [`Core::stored`](super::core::Core::stored).
    Store {
        seq: u64,
        outputs: Vec<NamedTensor>,
    },
    /// The journal has the task.
    Accepted {
        seq: u64,
    },
    /// A durable task belongs to another coordinator now, with its tensors outside the journal.
    HandedOver {
        seq: u64,
    },
    /// The journal cannot take the task, and the core has forgotten it.
    Rejected {
        seq: u64,
        reason: String,
    },
    /// The journal has no result of the task any more.
    Forgotten {
        seq: u64,
    },
    /// The task reached its terminal state; its record stays at least until the next event.
    Finished {
        seq: u64,
    },
    Load {
        session: SessionId,
        device: u32,
        model: ModelRef,
    },
    Unload {
        session: SessionId,
        device: u32,
        model: ModelRef,
    },
    /// Send an event to subscribers.
    Tell(Event),
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
pub enum Completion {
    Done {
        outputs: Vec<NamedTensor>,
        /// Time inside the executor, of the whole batch.
        model: Duration,
        /// Tasks of the batch.
        batch: u32,
        /// Another task of the batch accounts for the run.
        joined: bool,
    },
    Error {
        error: ExecError,
        model: Duration,
    },
    /// The worker did not begin: it leaves, or it was asked to give the attempt back.
    Refused,
    /// The stream broke while the connection lives.
    Broken {
        reason: String,
    },
    /// Memory shared with the worker failed, and the tensors in it are lost.
    Unshared,
    /// The coordinator no longer has the task's inputs: no worker can run it.
    NoInputs {
        reason: String,
    },
}
