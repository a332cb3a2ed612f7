//! The calls of clients and administrators to a coordinator: requests and responses as in
//! [`rpc`](crate::net::transport::rpc), each followed by the bytes of its tensors.

mod answer;
mod client;
mod room;
mod serve;
mod steady;
mod supervisor;
#[cfg(test)]
mod tests;
#[cfg(feature = "planted")]
pub(crate) mod untrusted;

pub use client::Client;
pub(crate) use client::{Answered, Parcel};
pub(crate) use room::Callers;
pub(crate) use serve::serve;
pub use supervisor::Supervisor;

use crate::net::identity::pki::Revocation;
use crate::net::identity::role::Role;
use crate::net::identity::token::TokenInfo;
use crate::net::transport::rpc::Certified;
use crate::proto::message::TensorMeta;
use crate::task::{Backoff, ModelRef, Priority, TaskFilter, TaskId, TaskSpec, TaskState};
use crate::worker_info::{Stats, WorkerId, WorkerInfo};
pub(crate) use answer::Record;
use answer::Refusal;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of the longest call and of the longest answer, without tensors.
const CALL_BYTES_MAX: usize = 64 << 10;
/// The longest call of administrators and of coordinators, which pass on many tasks at once.
const ADMIN_CALL_BYTES_MAX: usize = 4 << 20;
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A call.
#[derive(Serialize, Deserialize)]
pub(crate) enum Call {
    /// Does the coordinator take calls of this peer?
    Greet,
    /// A new certificate for a new key, before the old one expires.
    Renew {
        csr: Vec<u8>,
    },
    /// The models that the cluster has.
    Models,
    /// Accept a task.
    Submit(Box<Spec>),
    /// Accept a task and answer once it has ended.
    Run(Box<Spec>),
    /// Answer once a task has ended.
    Wait(TaskId),
    /// A task's record as it is now.
    Task(TaskId),
    Cancel(TaskId),
    Workers,
    Stats,
    ShutdownWorker(String),
    /// Accept no more tasks and answer once those that were accepted have ended.
    Drain,
    /// Set the number of local workers.
    Scale(u64),
    CreateToken {
        role: Role,
        uses: u32,
        ttl: Duration,
    },
    Revoke {
        role: Role,
        name: WorkerId,
    },
    /// Another coordinator asks.
    Peer(PeerCall),
}

/// Calls between coordinators: each answers from its own state only.
#[derive(Serialize, Deserialize)]
pub(crate) enum PeerCall {
    /// Accept tasks, all of them or none; the tensors of each follow in turn.
    SubmitAll(Vec<Item>),
    /// The task that an idempotency key stands for.
    Keyed(String),
    Wait(TaskId),
    Task(TaskId),
    Cancel(TaskId),
    State(TaskId),
    ModelOf(TaskId),
    StoredBytes(TaskId),
    LetGo(TaskId),
    Explain(TaskId),
    Tasks(TaskFilter),
    /// A part of a file of the mirrored folder, by the file's digest.
    Part {
        sha256: String,
        offset: u64,
    },
}

/// A task of several that are submitted together.
#[derive(Serialize, Deserialize)]
pub(crate) struct Item {
    spec: Spec,
    request_digest: Option<[u8; 32]>,
    /// Positions of the tasks that it depends on.
    within: Vec<u64>,
}

impl PeerCall {
    /// The task that it is about, if it is about one.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self {
            Self::Wait(id)
            | Self::Task(id)
            | Self::Cancel(id)
            | Self::State(id)
            | Self::ModelOf(id)
            | Self::StoredBytes(id)
            | Self::LetGo(id)
            | Self::Explain(id) => Some(*id),
            Self::SubmitAll(_) | Self::Keyed(_) | Self::Tasks(_) | Self::Part { .. } => None,
        }
    }

    /// Whether its answer may change until the task has ended.
    pub(crate) fn is_about_now(&self) -> bool {
        !matches!(self, Self::Wait(_) | Self::ModelOf(_))
    }
}

impl Call {
    /// Its name, and the role that it needs.
    pub(crate) fn needs(&self) -> (&'static str, Role) {
        match self {
            Self::Greet => ("greet", Role::Client),
            Self::Renew { .. } => ("renew", Role::Client),
            Self::Models => ("models", Role::Client),
            Self::Submit(_) => ("submit", Role::Client),
            Self::Run(_) => ("run", Role::Client),
            Self::Wait(_) => ("wait", Role::Client),
            Self::Task(_) => ("task", Role::Client),
            Self::Cancel(_) => ("cancel", Role::Client),
            Self::Workers => ("workers", Role::Admin),
            Self::Stats => ("stats", Role::Admin),
            Self::ShutdownWorker(_) => ("shutdown_worker", Role::Admin),
            Self::Drain => ("drain", Role::Admin),
            Self::Scale(_) => ("scale", Role::Admin),
            Self::CreateToken { .. } => ("create_token", Role::Admin),
            Self::Revoke { .. } => ("revoke", Role::Admin),
            Self::Peer(_) => ("peer", Role::Admin),
        }
    }
}

/// A task whose inputs follow as raw bytes in this order.
#[derive(Serialize, Deserialize)]
pub(crate) struct Spec {
    model: ModelRef,
    tensors: Vec<TensorMeta>,
    priority: Priority,
    deadline: Option<Duration>,
    idempotency_key: Option<String>,
    max_attempts: u32,
    durable: bool,
    depends_on: Vec<TaskId>,
    affinity: Option<String>,
    hedge_after: Option<Duration>,
    run_limit: Option<Duration>,
    backoff: Option<Backoff>,
}

impl Spec {
    /// All of a task but its inputs.
    fn of(spec: TaskSpec, tensors: Vec<TensorMeta>) -> Self {
        let TaskSpec { model, inputs: _, priority, deadline, idempotency_key, .. } = spec;
        let TaskSpec { max_attempts, durable, depends_on, affinity, hedge_after, .. } = spec;
        let TaskSpec { run_limit, backoff, .. } = spec;
        Self {
            model,
            tensors,
            priority,
            deadline,
            idempotency_key,
            max_attempts,
            durable,
            depends_on,
            affinity,
            hedge_after,
            run_limit,
            backoff,
        }
    }

    /// The task with its inputs.
    fn with(self, inputs: Vec<NamedTensor>) -> TaskSpec {
        TaskSpec {
            model: self.model,
            inputs,
            priority: self.priority,
            deadline: self.deadline,
            idempotency_key: self.idempotency_key,
            request_digest: None,
            max_attempts: self.max_attempts,
            durable: self.durable,
            depends_on: self.depends_on,
            affinity: self.affinity,
            hedge_after: self.hedge_after,
            run_limit: self.run_limit,
            backoff: self.backoff,
            traced: false,
        }
    }
}

/// The answer to a call.
pub(crate) type Answer = Result<Told, Refusal>;

/// The content of an answer that is no refusal.
#[derive(Serialize, Deserialize)]
pub(crate) enum Told {
    Done,
    Certified(Certified),
    Models(Vec<ModelRef>),
    Task(TaskId),
    /// The outputs follow as raw bytes.
    Record(Box<Record>),
    Workers(Vec<WorkerInfo>),
    Stats(Box<Stats>),
    /// How many there were.
    Count(u64),
    Token(TokenInfo, String),
    Revoked(Revocation, u64),
    Ids(Vec<TaskId>),
    Keyed(Option<(TaskId, [u8; 32])>),
    State(TaskState),
    Model(ModelRef),
    Story(Vec<(f64, String)>),
    Page(Vec<Record>, Option<TaskId>),
    Part(Option<Vec<u8>>),
}
