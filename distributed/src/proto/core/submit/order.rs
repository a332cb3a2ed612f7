//! A task for the core.

use crate::proto::state::Digest;
use crate::task::TaskSpec;
use std::sync::Arc;

/// A task that was checked and may be submitted.
#[derive(Debug, Clone)]
pub struct Order {
    pub spec: Arc<TaskSpec>,
    /// Bytes of its inputs.
    pub input_bytes: usize,
    /// Bytes that it takes in the queue: none where its inputs lie on the disk.
    pub queued_bytes: usize,
    /// The digest that tells its request from another one, if it has an idempotency key.
    pub digest: Digest,
    /// Tasks of the same submission that it depends on, by their position.
    pub within: Vec<usize>,
}
