//! Coordinator, workers, scheduling and the wire between them.
#![forbid(unsafe_code)]

mod config;
mod error;
mod executor;
mod net;
mod proto;
mod task;
mod worker_info;

pub use config::{CoordinatorConfig, WorkerConfig};
pub use error::{Error, Result};
pub use executor::{ExecError, ExecErrorKind, Executor, ExecutorStatus};
pub use net::coordinator::Coordinator;
pub use net::pki::{Identity, Pki};
pub use net::worker::run_worker;
pub use proto::balance::balancing_strategies;
pub use proto::frame::FrameError;
pub use task::{
    ModelRef, Priority, TaskError, TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState,
};
pub use worker_info::{
    Percentiles, Stats, TaskCounts, WorkerCounts, WorkerId, WorkerInfo, WorkerState,
};
