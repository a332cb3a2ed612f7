//! Answers as they travel: a task's record without its outputs' bytes, and errors.

use crate::error::Error;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::role::Role;
use crate::proto::message::TensorMeta;
use crate::task::{ModelRef, Priority, TaskError, TaskId, TaskRecord, TaskState};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// A record whose outputs follow.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    task_id: TaskId,
    model: ModelRef,
    priority: Priority,
    durable: bool,
    depends_on: Vec<TaskId>,
    state: TaskState,
    attempts: u32,
    worker: Option<WorkerId>,
    variant: Option<ModelRef>,
    pub(super) outputs: Option<Vec<TensorMeta>>,
    error: Option<TaskError>,
    queued_ms: f64,
    model_ms: Option<f64>,
    overhead_ms: Option<f64>,
}

impl Record {
    /// All of a record but its outputs' bytes.
    pub(crate) fn of(record: TaskRecord, outputs: Option<Vec<TensorMeta>>) -> Self {
        Self {
            task_id: record.task_id,
            model: record.model,
            priority: record.priority,
            durable: record.durable,
            depends_on: record.depends_on,
            state: record.state,
            attempts: record.attempts,
            worker: record.worker,
            variant: record.variant,
            outputs,
            error: record.error,
            queued_ms: record.queued_ms,
            model_ms: record.model_ms,
            overhead_ms: record.overhead_ms,
        }
    }

    /// The record with its outputs.
    pub(crate) fn with(self, outputs: Option<Vec<NamedTensor>>) -> TaskRecord {
        TaskRecord {
            task_id: self.task_id,
            model: self.model,
            priority: self.priority,
            durable: self.durable,
            depends_on: self.depends_on,
            state: self.state,
            attempts: self.attempts,
            worker: self.worker,
            // These do not travel.
            device: None,
            tries: Vec::new(),
            variant: self.variant,
            outputs,
            error: self.error,
            queued_ms: self.queued_ms,
            model_ms: self.model_ms,
            overhead_ms: self.overhead_ms,
        }
    }
}

/// An error that the caller can do something about; other errors travel as text.
#[derive(Serialize, Deserialize)]
pub(crate) enum Refusal {
    Role { call: String, needs: Role },
    Overloaded { queued: u64, queued_bytes: u64, retry_after: Duration },
    Conflict { key: String, existing: TaskId },
    InvalidTask { message: String },
    NoJournal,
    NotSaved { reason: String },
    UnknownTask { id: String },
    UnknownWorker { id: String },
    Draining,
    Stopped,
    Other { message: String },
    Join(JoinRefusal),
    Backlog { pending_bytes: u64, retry_after: Duration },
    Expired { id: TaskId },
    ResultLost { id: TaskId, reason: String },
    ResultUnread { id: TaskId, reason: String },
    HandedOver,
    NotEnded { id: TaskId, state: TaskState },
    NoLeader { reason: String },
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn narrow(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::RoleNeeded { call, needs } => Self::Role { call, needs },
            Error::Overloaded { queued, queued_bytes, retry_after } => {
                let (queued, queued_bytes) = (wide(queued), wide(queued_bytes));
                Self::Overloaded { queued, queued_bytes, retry_after }
            }
            Error::Conflict { key, existing } => Self::Conflict { key, existing },
            Error::InvalidTask { message } => Self::InvalidTask { message },
            Error::NoJournal => Self::NoJournal,
            Error::NotSaved { reason } => Self::NotSaved { reason },
            Error::Backlog { pending_bytes, retry_after } => {
                Self::Backlog { pending_bytes: wide(pending_bytes), retry_after }
            }
            Error::UnknownTask { id } => Self::UnknownTask { id },
            Error::Expired { id } => Self::Expired { id },
            Error::ResultLost { id, reason } => Self::ResultLost { id, reason },
            Error::ResultUnread { id, reason } => Self::ResultUnread { id, reason },
            Error::HandedOver => Self::HandedOver,
            Error::NotEnded { id, state } => Self::NotEnded { id, state },
            Error::NoLeader { reason } => Self::NoLeader { reason },
            Error::UnknownWorker { id } => Self::UnknownWorker { id },
            Error::Draining => Self::Draining,
            Error::Stopped => Self::Stopped,
            Error::JoinRefused { refusal, .. } => Self::Join(refusal),
            other => Self::Other { message: other.to_string() },
        }
    }
}

impl Refusal {
    /// The error that the coordinator at an address meant.
    pub(super) fn given_by(self, addr: SocketAddr) -> Error {
        match self {
            Self::Role { call, needs } => Error::RoleNeeded { call, needs },
            Self::Overloaded { queued, queued_bytes, retry_after } => {
                let (queued, queued_bytes) = (narrow(queued), narrow(queued_bytes));
                Error::Overloaded { queued, queued_bytes, retry_after }
            }
            Self::Conflict { key, existing } => Error::Conflict { key, existing },
            Self::InvalidTask { message } => Error::InvalidTask { message },
            Self::NoJournal => Error::NoJournal,
            Self::NotSaved { reason } => Error::NotSaved { reason },
            Self::Backlog { pending_bytes, retry_after } => {
                Error::Backlog { pending_bytes: narrow(pending_bytes), retry_after }
            }
            Self::UnknownTask { id } => Error::UnknownTask { id },
            Self::Expired { id } => Error::Expired { id },
            Self::ResultLost { id, reason } => Error::ResultLost { id, reason },
            Self::ResultUnread { id, reason } => Error::ResultUnread { id, reason },
            Self::HandedOver => Error::HandedOver,
            Self::NotEnded { id, state } => Error::NotEnded { id, state },
            Self::NoLeader { reason } => Error::NoLeader { reason },
            Self::UnknownWorker { id } => Error::UnknownWorker { id },
            Self::Draining => Error::Draining,
            Self::Stopped => Error::Stopped,
            Self::Join(refusal) => Error::JoinRefused { addr, refusal },
            Self::Other { message } => Error::CallFailed { message },
        }
    }
}
