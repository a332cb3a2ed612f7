//! Work beside the interpreter: other threads of Python go on meanwhile, ctrl-C is heard, and a panic is
//! an error like others.

use crate::error::Failure;
use lgp_sdk::Stop;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// So often it is looked whether ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

/// Does what takes long without the interpreter's lock.
///
/// # Errors
/// Those of the work; `internal` where it panics.
pub(crate) fn without_lock<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    py.detach(|| guarded(work))
}

/// The same on a thread of its own, while this one looks after signals: it is the only one that Python
/// gives them to. One that raises, as ctrl-C does, has the work asked to stop.
///
/// # Errors
/// Those of the work, and what the signal's handler raised.
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
                // Whoever waits is in this scope, and goes on waiting until it hears this.
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
                // What was raised is not lost where the work was done before it could stop.
                (_, Some(error)) => Err(error),
                (result, None) => result.map_err(PyErr::from),
            }
        })
    })
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Nothing that the work touched is used after a panic but through its own locks.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::panicked(&*panic)))
}
