//! The threads that write answers.

use std::sync::Arc;
use tokio::sync::Semaphore;

/// Answers that are written concurrently; each holds a thread, even while its reader is slow.
pub(super) const WRITING_MAX: usize = 32;

/// Limits the threads that write answers.
#[derive(Debug, Clone)]
pub(crate) struct Writers(pub(super) Arc<Semaphore>);

impl Default for Writers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WRITING_MAX)))
    }
}
