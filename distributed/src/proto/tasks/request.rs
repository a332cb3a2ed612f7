//! The request of a task: it never changes while the task is there.

use crate::proto::queue::{Place, aged};
use crate::proto::state::Digest;
use crate::task::{Priority, TaskSpec};
use std::sync::Arc;
use std::time::Duration;

/// A task as it was submitted.
#[derive(Debug)]
pub(in crate::proto) struct Request {
    /// Gone once the task has ended.
    spec: Option<Arc<TaskSpec>>,
    priority: Priority,
    durable: bool,
    key: Option<(String, Digest)>,
    submitted: Duration,
    /// Its place in the queue: when a critical task would have had to come to be its equal.
    due: Duration,
    deadline: Option<Duration>,
    input_bytes: usize,
    /// Bytes that it counts for in the queue.
    queued_bytes: usize,
}

impl Request {
    /// A request, with the time of its submission, the bytes of its inputs, and how many of them
    /// take room in the queue.
    pub(in crate::proto) fn new(
        submitted: Duration,
        spec: Arc<TaskSpec>,
        digest: Digest,
        input_bytes: usize,
        queued_bytes: usize,
    ) -> Self {
        Self {
            priority: spec.priority,
            durable: spec.durable,
            key: spec.idempotency_key.clone().map(|key| (key, digest)),
            submitted,
            due: aged(submitted, spec.priority),
            // A deadline beyond the end of time is none.
            deadline: spec.deadline.and_then(|d| submitted.checked_add(d)),
            input_bytes,
            queued_bytes,
            spec: Some(spec),
        }
    }

    /// The task to run; `None` once it has ended.
    pub(in crate::proto) fn spec(&self) -> Option<&Arc<TaskSpec>> {
        self.spec.as_ref()
    }

    pub(in crate::proto) fn priority(&self) -> Priority {
        self.priority
    }

    /// Whether the journal must have the task.
    pub(in crate::proto) fn is_durable(&self) -> bool {
        self.durable
    }

    /// The idempotency key, and the digest of the request.
    pub(in crate::proto) fn key(&self) -> Option<&(String, Digest)> {
        self.key.as_ref()
    }

    pub(in crate::proto) fn submitted(&self) -> Duration {
        self.submitted
    }

    pub(in crate::proto) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    pub(in crate::proto) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    pub(in crate::proto) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(in crate::proto) fn place(&self, seq: u64) -> Place {
        Place::new(self.due, seq)
    }

    /// The key that sends tasks to the same device.
    pub(in crate::proto) fn affinity(&self) -> Option<&str> {
        self.spec.as_ref()?.affinity.as_deref()
    }

    /// Drops what only running the task takes.
    pub(super) fn finish(&mut self) {
        self.spec = None;
    }

    /// The same, with a priority that counts for more than it should.
    #[cfg(feature = "planted")]
    pub(in crate::proto) fn starved(self, now: Duration) -> Self {
        Self { due: self.due + 10 * self.due.saturating_sub(now), ..self }
    }

    /// Moves it back in the queue.
    #[cfg(feature = "planted")]
    pub(super) fn delay(&mut self, by: Duration) {
        self.due += by;
    }
}
