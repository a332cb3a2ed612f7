//! Ids and states of tasks.

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Identifies a task; ids of different runs of a coordinator never coincide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TaskId {
    /// The coordinator's epoch.
    pub(crate) epoch: u64,
    /// Position in the order of submission, from 1.
    pub(crate) seq: u64,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.epoch, self.seq)
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The state of a task. The last three are terminal; exactly one of them is ever recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waits for a worker, or for its next attempt.
    Queued,
    /// A worker has an attempt of the task.
    Running,
    /// The outputs are available.
    Succeeded,
    /// The task failed, for the reason in its error.
    Failed,
    /// Cancelled by a caller before it finished.
    Cancelled,
}

impl TaskState {
    /// Whether the state never changes again.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// The name as it is written in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
