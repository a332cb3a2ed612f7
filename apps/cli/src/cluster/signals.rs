//! Requests to stop: ctrl-C, SIGTERM, and the cluster API.

use crate::failure::{Failure, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to end.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to listen; from now on these signals do not kill the process.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(Failure::internal);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Resolves at the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
