//! Attempts at a task as callers see them.

use crate::task::TaskErrorKind;
use crate::worker_info::WorkerId;
use std::sync::Arc;

/// One attempt at a task. Times are in milliseconds since the task's submission.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// Its number within the task, from 1.
    pub attempt: u32,
    /// The worker that it was sent to.
    pub worker: WorkerId,
    /// The device of that worker, for example `opencl:0`.
    pub device: Arc<str>,
    /// When it was sent.
    pub sent_ms: f64,
    /// When its answer was there, or nobody waited for it any more.
    pub ended_ms: Option<f64>,
    /// Time inside [`Executor::execute`](crate::Executor::execute), measured at the worker.
    pub model_ms: Option<f64>,
    /// Attempts in the run that answered it, itself included; 0 where none did.
    pub batch: u32,
    /// It ran in a batch, of which another task stands for the run of all: the runs are the attempts
    /// of which this is false.
    pub joined: bool,
    /// Why it had no answer that counts.
    pub error: Option<TaskErrorKind>,
}
