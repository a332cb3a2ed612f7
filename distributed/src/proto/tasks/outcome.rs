//! A task's attempts so far, and its end.

use super::phase::Run;
use super::tries::Tries;
use crate::proto::image::End;
use crate::proto::state::SessionId;
use crate::task::{ModelRef, TaskError};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::time::Duration;

/// The attempts at a task so far.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Attempts begun, and attempts that ended without an answer.
    pub(super) begun: u32,
    pub(super) failures: u32,
    /// Workers that were lost under it.
    pub(super) losses: u32,
    /// The last attempt ended with its worker, and may go on if the worker comes back.
    pub(super) lost: bool,
    /// The task was moved off a worker where it would have waited for long, which happens once. The
    /// next attempt avoids `away_from`, if another device is free.
    pub(super) moved: bool,
    pub(super) away_from: Option<SessionId>,
    /// Worker and device of the last attempt.
    pub(super) worker: Option<WorkerId>,
    pub(super) device: Option<Arc<str>>,
    /// The variant of the model that ran last, where that was not the model itself.
    pub(super) variant: Option<Arc<ModelRef>>,
    /// Time from submission to the last dispatch; `None` while it waits.
    pub(super) queued: Option<Duration>,
    pub(super) tries: Tries,
}

impl Attempts {
    /// The record names this attempt.
    pub(super) fn show(&mut self, run: &Run) {
        self.worker = Some(run.worker.clone());
        self.device = Some(Arc::clone(&run.device));
        self.variant.clone_from(&run.variant);
        self.queued = Some(run.queued);
    }
}

/// How a task ended; empty until it has.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) model_time: Option<Duration>,
    pub(super) finished: Option<Duration>,
    pub(super) outputs: Option<Vec<NamedTensor>>,
    pub(super) error: Option<TaskError>,
}

impl Outcome {
    pub(super) fn new(end: End) -> Self {
        let (outputs, error) = match end.result {
            Ok(outputs) => (Some(outputs), None),
            Err(error) => (None, Some(error)),
        };
        Self { model_time: end.model_time, finished: Some(end.finished), outputs, error }
    }

    /// Bytes that it keeps alive.
    pub(super) fn bytes(&self) -> usize {
        let outputs = self.outputs.iter().flatten().map(|o| o.tensor.packed_len()).sum();
        usize::saturating_add(outputs, self.error.as_ref().map_or(0, |e| e.message.len()))
    }
}
