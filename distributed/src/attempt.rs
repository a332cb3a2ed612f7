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
    /// When its answer arrived, or when the coordinator stopped waiting for it.
    pub ended_ms: Option<f64>,
    /// Time inside [`Executor::execute`](crate::Executor::execute), measured at the worker.
    pub model_ms: Option<f64>,
    /// Attempts in the run that answered it, itself included; 0 if no run did.
    pub batch: u32,
    /// Whether it shared its run with an attempt that stands for the run: attempts with `false`
    /// count the runs.
    pub joined: bool,
    /// Why it has no valid answer.
    pub error: Option<TaskErrorKind>,
}
