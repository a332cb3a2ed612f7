//! The id of an attempt.

use serde::{Deserialize, Serialize};

/// Identifies one attempt at a task. A completion counts only with all three up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The coordinator's epoch.
    pub epoch: u64,
    /// The task's number within the epoch.
    pub seq: u64,
    /// The attempt's number within the task, from 1.
    pub attempt: u32,
}
