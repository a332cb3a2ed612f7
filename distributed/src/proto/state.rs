//! What the core is made of: its settings, its tasks, its timers, and what it wants done.

use crate::executor::ExecError;
use crate::proto::balance::Balance;
use crate::proto::event::Event;
use crate::proto::image::{Change, End};
use crate::proto::message::AttemptId;
use crate::proto::queue::Place;
use crate::proto::why::Note;
use crate::task::{ModelRef, Priority, TaskError, TaskId, TaskSpec, TaskState};
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
    /// For how long an idempotency key stands for its task after that has ended, and for how
    /// many such tasks.
    pub(crate) keys_kept_for: Duration,
    pub(crate) keys_max: usize,
    /// Whether there is a journal for durable tasks.
    pub(crate) durable: bool,
    /// Milliseconds of completion time that a joule is worth to the adaptive strategy.
    pub(crate) thrift: f64,
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
    /// Hand an attempt to a device of a worker.
    Dispatch {
        session: SessionId,
        device: u32,
        id: AttemptId,
        /// The model of the task, or a variant of it.
        model: Arc<ModelRef>,
        spec: Arc<TaskSpec>,
    },
    /// Nobody wants the attempt's answer any more.
    Cancel {
        session: SessionId,
        id: AttemptId,
    },
    /// Have the worker refuse the attempt, if it has not begun.
    Recall {
        session: SessionId,
        id: AttemptId,
    },
    /// Put a change into the journal; its fate comes back by the ticket.
    Record {
        ticket: u64,
        change: Change,
    },
    /// The journal has the task.
    Accepted {
        seq: u64,
    },
    /// The journal cannot take the task, which is forgotten.
    Rejected {
        seq: u64,
        reason: String,
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
    /// Subscribers may want to know.
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
pub(crate) enum Completion {
    Done {
        outputs: Vec<NamedTensor>,
        /// Time inside the executor, of the whole batch.
        model: Duration,
        /// Tasks of the batch.
        batch: u32,
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
    /// Memory that was shared with the worker failed, and with it what lay there.
    Unshared,
    /// The coordinator has the task's inputs no more: nobody can run it.
    NoInputs {
        reason: String,
    },
}

/// An attempt under way.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) session: SessionId,
    pub(super) attempt: u32,
    pub(super) worker: WorkerId,
    /// The variant of the task's model that it runs, where that is not the model itself.
    pub(super) variant: Option<Arc<ModelRef>>,
    /// Time from submission to its dispatch.
    pub(super) queued: Duration,
}

/// A task as the core keeps it.
#[derive(Debug)]
pub(super) struct Task {
    /// The epoch in which it was submitted, which its id names.
    pub(super) epoch: u64,
    /// Gone once the task is terminal.
    pub(super) spec: Option<Arc<TaskSpec>>,
    pub(super) model: Arc<ModelRef>,
    pub(super) priority: Priority,
    pub(super) state: TaskState,
    pub(super) input_bytes: usize,
    /// What it counts for in the queue.
    pub(super) queued_bytes: usize,
    pub(super) submitted: Duration,
    /// Its place in line: when a critical task would have had to come to be its equal.
    pub(super) due: Duration,
    pub(super) deadline: Option<Duration>,
    /// When the next attempt may begin, while the task waits for that.
    pub(super) retry_at: Option<Duration>,
    /// Attempts begun, and attempts that ended without an answer.
    pub(super) attempts: u32,
    pub(super) failures: u32,
    /// The next attempt draws on the retry budget.
    pub(super) budgeted: bool,
    /// When the current attempt may get a rival.
    pub(super) hedge_at: Option<(Duration, u32)>,
    /// It was moved off a worker where it would have waited for long, which happens once: the
    /// next attempt goes to another, if one is free.
    pub(super) moved: bool,
    pub(super) away_from: Option<SessionId>,
    /// The current attempt, and its rival where it has one.
    pub(super) runs: Vec<Run>,
    pub(super) worker: Option<WorkerId>,
    /// The variant of its model that ran last, where that was not the model itself.
    pub(super) variant: Option<Arc<ModelRef>>,
    /// Time from submission to the last dispatch; `None` while it waits.
    pub(super) queued: Option<Duration>,
    pub(super) model_time: Option<Duration>,
    pub(super) finished: Option<Duration>,
    pub(super) outputs: Option<Vec<NamedTensor>>,
    pub(super) error: Option<TaskError>,
    pub(super) key: Option<(String, Digest)>,
    pub(super) durable: bool,
    /// The journal has it; true for tasks that need none.
    pub(super) saved: bool,
    /// How it ends, once that is known and until the journal has it.
    pub(super) ending: Option<Box<End>>,
    pub(super) depends_on: Vec<TaskId>,
    /// Of these, tasks that have not ended.
    pub(super) waits: usize,
    /// Tasks that are not terminal and depend on it.
    pub(super) dependants: Vec<u64>,
    /// Tasks that are not terminal and depend on it: its record stays as long as theirs may have
    /// to be understood by a later coordinator.
    pub(super) pins: usize,
    /// Its record goes when its turn comes.
    pub(super) listed: bool,
    pub(super) notes: Vec<Note>,
}

impl Task {
    pub(super) fn place(&self, seq: u64) -> Place {
        Place::new(self.due, seq)
    }

    /// The run of an attempt by a session, if it is current.
    pub(super) fn run(&self, session: SessionId, attempt: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.session == session && run.attempt == attempt)
    }

    /// Whether it waits for the answer of an attempt by a session.
    pub(super) fn awaits(&self, session: SessionId, attempt: u32) -> bool {
        let current = self.run(session, attempt).is_some();
        current && self.state == TaskState::Running && self.ending.is_none()
    }

    /// The attempt is not current any more.
    pub(super) fn drop_run(&mut self, session: SessionId, attempt: u32) {
        self.runs.retain(|run| run.session != session || run.attempt != attempt);
    }

    /// Whether nothing but a free device is missing.
    pub(super) fn may_run(&self) -> bool {
        self.state == TaskState::Queued
            && self.saved
            && self.waits == 0
            && self.retry_at.is_none()
            && self.ending.is_none()
    }

    /// Whether it will change no more, whether the journal has that already or not.
    pub(super) fn has_ended(&self) -> bool {
        self.state.is_terminal() || self.ending.is_some()
    }
}

/// Something that is due at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Deadline(u64),
    Retry(u64),
    /// The retry budget has a token again.
    Budget,
    /// An attempt may get a rival.
    Hedge(u64, u32),
    /// A breaker may let a probe pass.
    Probe(SessionId, ModelRef),
    /// What the journal could not take is tried again.
    Journal,
    Membership,
}

/// Faults that tests plant to see that the simulation catches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Planted {
    #[default]
    Nothing,
    /// Completions of attempts that are no longer current are accepted.
    AcceptStale,
    /// Tasks of a lost worker are not redone.
    ForgetLost,
    /// Workers get more than their slots hold.
    IgnoreSlots,
    /// Answers of an earlier epoch count.
    IgnoreEpoch,
    /// A failed attempt is not repeated.
    ForgetRetry,
    /// A durable task is acknowledged before the journal has it.
    AcceptEarly,
    /// The end of a durable task is shown before the journal has it.
    EndEarly,
    /// Tasks run before those that they depend on have ended.
    IgnoreDependencies,
    /// A failed dependency fails nothing.
    KeepDependants,
    /// Breakers never open.
    IgnoreBreakers,
    /// Retries are not limited.
    IgnoreBudget,
    /// Deadlines are not watched.
    IgnoreDeadlines,
    /// Priorities never age.
    Starve,
    /// A key is forgotten with its first task's end.
    ForgetKeys,
    /// A silent worker is never given up.
    TrustSilence,
    /// Tasks of an earlier life are not taken from the journal.
    ForgetJournal,
    /// The loser of two rivals keeps running.
    KeepRival,
    /// Records go while later coordinators may need them to understand others.
    ForgetPins,
    /// Models are loaded where there is no room for them.
    IgnoreMemory,
    /// Models do not wait for the tasks of those whose room they take.
    EvictBusy,
    /// Models do not wait until those whose room they take have gone.
    LoadEarly,
    /// What workers hold that was not placed there is not looked at.
    ForgetStrays,
    /// A task that came back unbegun, as asked, is not queued again.
    ForgetRecalled,
    /// Coming back unbegun counts as a failure.
    RecallFails,
    /// The same attempt is asked back again and again.
    RecallTwice,
    /// A task that is asked back is sent elsewhere before its worker has agreed.
    RecallAssumed,
    /// A task that came back unbegun goes to the end of the line.
    RecallLosesPlace,
}

impl Planted {
    /// Every fault that can be planted.
    pub(crate) const ALL: [Self; 27] = [
        Self::AcceptStale,
        Self::ForgetLost,
        Self::IgnoreSlots,
        Self::IgnoreEpoch,
        Self::ForgetRetry,
        Self::AcceptEarly,
        Self::EndEarly,
        Self::IgnoreDependencies,
        Self::KeepDependants,
        Self::IgnoreBreakers,
        Self::IgnoreBudget,
        Self::IgnoreDeadlines,
        Self::Starve,
        Self::ForgetKeys,
        Self::TrustSilence,
        Self::ForgetJournal,
        Self::KeepRival,
        Self::ForgetPins,
        Self::IgnoreMemory,
        Self::EvictBusy,
        Self::LoadEarly,
        Self::ForgetStrays,
        Self::ForgetRecalled,
        Self::RecallFails,
        Self::RecallTwice,
        Self::RecallAssumed,
        Self::RecallLosesPlace,
    ];
}
