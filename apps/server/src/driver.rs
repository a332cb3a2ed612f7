//! The owner of the worker processes. The server asks it to scale, restart and stop them.

use lgp_sdk::cluster::TaskId;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future, so that the trait is object-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts and ends processes on behalf of the cluster API.
pub trait Driver: Send + Sync + 'static {
    /// Brings the number of local workers to `workers`: starts missing ones, drains surplus ones.
    /// Resolves once that has begun, with the number before the call.
    fn scale(&self, workers: usize) -> BoxFuture<'_, Result<usize, DriverError>>;

    /// Replaces every local worker by a new process, one after another and without a pause in service. A worker
    /// that is still busy `limit` after its successor was ready is ended. A worker stays if it serves a model that
    /// its successor cannot load.
    fn restart(&self, limit: Duration) -> BoxFuture<'_, Result<Restarted, DriverError>>;

    /// The intended number of local workers.
    fn workers(&self) -> usize;

    /// Ends the coordinator: `now` drops queued tasks, otherwise they are finished first. Returns at once, so that
    /// the request for the stop can be answered.
    fn stop(&self, now: bool);

    /// The log files of the owner and of the workers that it started; by default none.
    fn logs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The memory that a run of the model in a file takes, as in `radeon-cluster plan FILE --json`.
    fn plan(&self, _model: PathBuf) -> BoxFuture<'_, Result<serde_json::Value, DriverError>> {
        Box::pin(async { Err(DriverError::Plan(PlanError::NoProcess)) })
    }
}

/// The result of a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restarted {
    /// Workers that were replaced.
    pub workers: usize,
    /// Tasks whose attempt was ended because their worker had to leave.
    pub ended: Vec<TaskId>,
}

/// Why a [`Driver`] refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// More workers than this machine can take.
    #[error("{given} workers asked for, expected at most {max}")]
    TooMany {
        /// The number of workers that was asked for.
        given: usize,
        /// The most workers that this machine can take.
        max: usize,
    },
    /// A model's memory was not planned.
    #[error("the memory was not planned: {0}")]
    Plan(PlanError),
    /// The coordinator is shutting down.
    #[error("the coordinator is stopping")]
    Stopping,
    /// A worker process did not start.
    #[error("a worker did not start: {0}")]
    Start(String),
    /// A new worker could not load a model that the old one serves, so the old worker stays.
    #[error(
        "a new worker cannot load model {model}, which the old one serves and stays for; {done} of \
         {count} workers were replaced"
    )]
    Unloadable {
        /// The model, as `NAME/VERSION`.
        model: String,
        /// Workers that had been replaced.
        done: usize,
        /// Workers that were to be replaced.
        count: usize,
    },
}

/// Why a model's memory was not planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The owner of the worker processes starts no process for plans.
    #[error("no process is started for that here")]
    NoProcess,
    /// The process did not start.
    #[error("its process did not start: {0}")]
    NotStarted(#[source] std::io::Error),
    /// The process exceeded its time limit and was ended.
    #[error("it was not done after {limit:?}")]
    TooLong {
        /// The time limit.
        limit: Duration,
    },
    /// A signal ended the process.
    #[error("its process was ended by signal {signal}")]
    Killed {
        /// The number of the signal.
        signal: i32,
    },
    /// The process reported that the model does not load; the log has its message.
    #[error("the model does not load")]
    Unloadable,
    /// The output of the process is not a plan.
    #[error("its process wrote something else, expected JSON: {0}")]
    Unreadable(#[source] serde_json::Error),
}

impl PlanError {
    /// The signal with which the kernel kills a process when memory is short.
    const SIGKILL: i32 = 9;

    /// What the user can do about the error.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::NoProcess => "radeon-cluster plan FILE does it by hand",
            Self::NotStarted(_) => {
                "restart the coordinator if its program was replaced, or free memory on its machine; \
                 radeon-cluster plan FILE does the same by hand"
            }
            Self::TooLong { .. } => {
                "try again while the machine is less busy; radeon-cluster plan FILE does the same by \
                 hand, and takes its time"
            }
            Self::Killed { signal: Self::SIGKILL } => {
                "the machine may be short of memory, which dmesg says there; radeon-cluster plan FILE \
                 does the same by hand"
            }
            // A process that runs out of memory reports it, then aborts.
            Self::Killed { .. } => {
                "the server's log has what the process said before, if anything; radeon-cluster plan \
                 FILE does the same by hand"
            }
            Self::Unloadable => {
                "the server's log has the cause; radeon-cluster plan FILE does the same by hand"
            }
            Self::Unreadable(_) => {
                "restart the coordinator if its program was replaced; radeon-cluster plan FILE does \
                 the same by hand"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    #[test]
    fn only_what_the_log_has_is_looked_for_there() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let odd = serde_json::from_str::<u8>("nothing").expect_err("it is no number");
        for (error, part) in [
            (PlanError::NoProcess, "by hand"),
            (PlanError::NotStarted(missing), "restart the coordinator"),
            (PlanError::TooLong { limit: Duration::from_secs(60) }, "try again"),
            (PlanError::Killed { signal: 9 }, "short of memory"),
            (PlanError::Killed { signal: 6 }, "the server's log has what the process said"),
            (PlanError::Killed { signal: 11 }, "the server's log has what the process said"),
            (PlanError::Unloadable, "the server's log has the cause"),
            (PlanError::Unreadable(odd), "restart the coordinator"),
        ] {
            let is_logged =
                matches!(error, PlanError::Killed { signal: 6 | 11 } | PlanError::Unloadable);
            let fault = faults::driver(&DriverError::Plan(error));
            let hint = fault.hint.expect("a hint");
            assert_eq!((fault.status.as_u16(), fault.code), (503, "not_planned"));
            assert!(hint.contains(part) && hint.contains("log") == is_logged, "{hint}");
            assert_eq!(hint.contains("short of memory"), part == "short of memory", "{hint}");
        }
    }
}
