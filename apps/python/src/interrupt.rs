//! Runs work without the interpreter's lock: other Python threads go on, ctrl-C works, and a panic becomes an
//! ordinary error.

use crate::error::Failure;
use lgp_sdk::model::Stop;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The interval of checks for ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Runs slow work without the interpreter's lock.
///
/// # Errors
/// Errors of the work; `internal` if it panics.
pub(crate) fn without_lock<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    py.detach(|| guarded(work))
}

/// Runs work on its own thread while this thread handles signals, which Python delivers only here. A handler that
/// raises, as for ctrl-C, asks the work to stop.
///
/// # Errors
/// Errors of the work, and the exception that a signal's handler raised.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let stop = Stop::new();
        let (done, ended) = mpsc::channel();
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let result = guarded(|| work(&stop));
                // The receiver is in this scope and waits for this message.
                let _ = done.send(());
                result
            });
            let mut raised = None;
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if let (None, Err(error)) = (&raised, Python::attach(|py| py.check_signals())) {
                    stop.stop();
                    raised = Some(error);
                }
            }
            let result = worker.join().unwrap_or_else(|panic| Err(Failure::panicked(&*panic)));
            match (result, raised) {
                // The exception counts even if the work finished before it could stop.
                (_, Some(error)) => Err(error),
                (result, None) => result.map_err(PyErr::from),
            }
        })
    })
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // After a panic, the work's data are only used through their own locks.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::panicked(&*panic)))
}
