//! The phase of a task, with the data that belongs to it alone.

use crate::proto::image::End;
use crate::proto::state::SessionId;
use crate::task::{ModelRef, TaskState};
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

/// The phase of a task.
///
/// `Saving → Waiting → Ready → Running → Ending → Ended`; each task skips the phases that it does
/// not need. It goes back from `Running` to `Ready`, at once or through `Backoff` and `Parked`, and
/// from anywhere to `Ending` or `Ended`.
#[derive(Debug)]
pub(in crate::proto) enum Phase {
    /// It is accepted once the journal has it.
    Saving,
    /// Tasks that it depends on have not ended.
    Waiting,
    /// It is in the queue: it waits only for a free device.
    Ready,
    /// An attempt failed: the next one may begin at a set time.
    Backoff { until: Duration },
    /// That time has come, but the retry budget has no token for it.
    Parked,
    Running {
        /// The current attempt, and its rival where it has one.
        runs: Vec<Run>,
        /// When the attempt of that number may get a rival.
        rival_at: Option<(Duration, u32)>,
    },
    /// Its end is known, and is shown once the journal has it.
    Ending {
        end: Box<End>,
        was_running: bool,
        /// Whether the journal has the task itself.
        saved: bool,
    },
    /// In one of the terminal states.
    Ended(TaskState),
}

/// An attempt under way.
#[derive(Debug, Clone)]
pub(in crate::proto) struct Run {
    pub(in crate::proto) session: SessionId,
    pub(in crate::proto) attempt: u32,
    pub(in crate::proto) worker: WorkerId,
    /// The name of that worker's device.
    pub(in crate::proto) device: Arc<str>,
    /// The variant of the task's model that it runs, where that is not the model itself.
    pub(in crate::proto) variant: Option<Arc<ModelRef>>,
    /// Time from submission to its dispatch.
    pub(in crate::proto) queued: Duration,
}

impl Run {
    /// Whether it is the attempt of that number by a session.
    pub(in crate::proto) fn is(&self, session: SessionId, attempt: u32) -> bool {
        self.session == session && self.attempt == attempt
    }
}

impl Phase {
    /// The state, as callers see it.
    pub(super) fn state(&self) -> TaskState {
        match self {
            Self::Running { .. } | Self::Ending { was_running: true, .. } => TaskState::Running,
            Self::Ended(state) => *state,
            Self::Saving
            | Self::Waiting
            | Self::Ready
            | Self::Backoff { .. }
            | Self::Parked
            | Self::Ending { was_running: false, .. } => TaskState::Queued,
        }
    }

    /// Whether the journal has the task, or need not.
    pub(super) fn is_saved(&self) -> bool {
        !matches!(self, Self::Saving | Self::Ending { saved: false, .. })
    }
}
