//! What stays in memory of an ended task whose record is in the journal, or whose key still stands.

use crate::proto::tasks::Task;
use crate::task::{ModelRef, TaskId, TaskState};
use std::sync::Arc;
use std::time::Duration;

/// An ended task.
#[derive(Debug, Clone)]
pub(in crate::proto) struct Stub {
    pub(in crate::proto) id: TaskId,
    pub(in crate::proto) model: Arc<ModelRef>,
    pub(in crate::proto) key: Option<Arc<str>>,
    pub(in crate::proto) finished_ms: u64,
    /// Approximate bytes of its record in the journal.
    pub(in crate::proto) bytes: u64,
    /// Open tasks that depend on it.
    pub(in crate::proto) pins: u32,
    pub(in crate::proto) state: TaskState,
    /// Its record is in the journal.
    pub(in crate::proto) durable: bool,
    /// Its result is not kept any more.
    pub(in crate::proto) gone: bool,
}

/// Approximate bytes of a record in the journal besides its result.
pub(in crate::proto) const RECORD_BYTES: u64 = 256;

impl Stub {
    /// The stub of a task that has just ended.
    pub(in crate::proto) fn of(task: &Task, key: Option<Arc<str>>) -> Self {
        let result = u64::try_from(task.retained_bytes()).unwrap_or(u64::MAX);
        Self {
            id: task.id(),
            model: Arc::clone(task.model()),
            key,
            finished_ms: Self::whole_ms(task.finished().unwrap_or_default()),
            bytes: result.saturating_add(RECORD_BYTES),
            pins: u32::try_from(task.pins()).unwrap_or(u32::MAX),
            state: task.state(),
            durable: task.request().is_durable(),
            gone: false,
        }
    }

    /// A time in milliseconds, rounded up: what is kept for a time is kept for all of it.
    pub(in crate::proto) fn whole_ms(at: Duration) -> u64 {
        u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    pub(super) fn place(&self) -> (u64, u64) {
        (self.finished_ms, self.id.seq)
    }

    pub(in crate::proto) fn finished(&self) -> Duration {
        Duration::from_millis(self.finished_ms)
    }

    /// Whether the stub has to stay though its result is gone.
    pub(in crate::proto) fn is_needed(&self, now: Duration, keys_kept_for: Duration) -> bool {
        let young = now < self.finished().saturating_add(keys_kept_for);
        self.pins > 0 || (self.key.is_some() && young)
    }
}
