//! Whoever owns the processes: the server asks it for more or fewer workers, and for the end.

use lgp_sdk::TaskId;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

/// A future as trait objects can return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts and ends processes on behalf of the cluster API.
pub trait Driver: Send + Sync + 'static {
    /// Brings the number of local workers to `workers`: starts missing ones, drains surplus ones.
    /// Resolves once that has begun, with the number there was before.
    fn scale(&self, workers: usize) -> BoxFuture<'_, Result<usize, DriverError>>;

    /// Replaces every local worker by a new process, one after another and without a pause in
    /// service. A worker that has not finished `limit` after its successor was ready is ended. One
    /// that serves a model that its successor cannot load stays.
    fn restart(&self, limit: Duration) -> BoxFuture<'_, Result<Restarted, DriverError>>;

    /// How many local workers there are to be.
    fn workers(&self) -> usize;

    /// Ends the coordinator: `now` drops what is queued, otherwise it is finished first. Returns
    /// at once, so that the request that asked for it can be answered.
    fn stop(&self, now: bool);

    /// The files to which it, and the workers that it started, log; none unless it says so.
    fn logs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What a run of the model in a file takes of memory, as `radeon-cluster plan FILE --json` says it.
    fn plan(&self, _model: PathBuf) -> BoxFuture<'_, Result<serde_json::Value, DriverError>> {
        Box::pin(async { Err(DriverError::Plan(PlanError::NoProcess)) })
    }
}

/// What became of a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restarted {
    /// Workers that were replaced.
    pub workers: usize,
    /// Tasks of which an attempt was ended because its worker had to leave.
    pub ended: Vec<TaskId>,
}

/// Why a [`Driver`] did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// More workers than this machine can take.
    #[error("{given} workers asked for, expected at most {max}")]
    TooMany {
        /// What was asked for.
        given: usize,
        /// What there can be.
        max: usize,
    },
    /// A model's memory was not planned.
    #[error("the memory was not planned: {0}")]
    Plan(PlanError),
    /// The coordinator is on its way out.
    #[error("the coordinator is stopping")]
    Stopping,
    /// A worker process did not start.
    #[error("a worker did not start: {0}")]
    Start(String),
    /// A new worker could not load what the old one serves, which therefore stays.
    #[error(
        "a new worker cannot load model {model}, which the old one serves and stays for; {done} of \
         {count} workers were replaced"
    )]
    Unloadable {
        /// The model, as `NAME/VERSION`.
        model: String,
        /// Workers that had been replaced.
        done: usize,
        /// Workers that were to be.
        count: usize,
    },
}

/// Why a model's memory was not planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Whoever owns the processes starts none for that.
    #[error("no process is started for that here")]
    NoProcess,
    /// The process did not start.
    #[error("its process did not start: {0}")]
    NotStarted(#[source] std::io::Error),
    /// It took longer than it may, and was ended.
    #[error("it was not done after {limit:?}")]
    TooLong {
        /// How long it may take.
        limit: Duration,
    },
    /// A signal ended the process.
    #[error("its process was ended by signal {signal}")]
    Killed {
        /// Its number.
        signal: i32,
    },
    /// The process said that it cannot; that is in the log.
    #[error("the model does not load")]
    Unloadable,
    /// What the process wrote is no plan.
    #[error("its process wrote something else, expected JSON: {0}")]
    Unreadable(#[source] serde_json::Error),
}

impl PlanError {
    /// The number of the signal with which the kernel ends a process where memory is short.
    const SIGKILL: i32 = 9;

    /// What can be done about it.
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
            // A process that finds no memory says so, and then aborts.
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
