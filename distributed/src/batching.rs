//! How tasks of a model are batched, and how a device warms a model up before the first task.

use lgp_memory::DType;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// The upper limit of any batch delay, whatever the settings say.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(10);

/// How tasks of one model that wait for the same device form one run. Replaces the worker's
/// [`batch_max`](crate::WorkerConfig::batch_max) and
/// [`batch_delay`](crate::WorkerConfig::batch_delay).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Tasks of a run, at most; 1 for each alone.
    pub max: NonZeroU32,
    /// Batch sizes that run well. The largest size that waiting tasks fill runs at once.
    #[serde(default)]
    pub preferred: Vec<NonZeroU32>,
    /// How long the first task waits for others, in microseconds. After that, the waiting tasks
    /// run, up to `max`.
    #[serde(default)]
    pub delay_us: u64,
}

impl Batching {
    /// The most tasks of a run that [`Batching::max`] may ask for.
    pub const MAX: u32 = 1_024;
    /// The most preferred batch sizes.
    pub const PREFERRED_MAX: usize = 16;
    /// The longest delay, in microseconds.
    pub const DELAY_US_MAX: u64 = 10_000_000;
}

/// An input of a model that is all zeros, or empty strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroInput {
    /// The input's name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<u64>,
}
