//! How tasks of a model run together.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// How tasks of one model that wait for the same device become one run. Instead of a worker's
/// [`batch_max`](crate::WorkerConfig::batch_max) and [`batch_delay`](crate::WorkerConfig::batch_delay).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Tasks of a run, at most; 1 for each alone.
    pub max: NonZeroU32,
    /// Numbers of tasks that run well: the largest one that waits runs at once.
    #[serde(default)]
    pub preferred: Vec<NonZeroU32>,
    /// How long the first task waits for others, in microseconds; after that what waits runs, up to `max`.
    #[serde(default)]
    pub delay_us: u64,
}
