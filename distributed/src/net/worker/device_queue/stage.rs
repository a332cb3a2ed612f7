//! An attempt at its worker: how far it has come, and whether its run is asked to stop.

use crate::executor::Stop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How far an attempt has come.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    begun: AtomicBool,
    /// Signals that it is recalled.
    pub(crate) recalled: Notify,
    /// Signals that its answer is not wanted any more.
    pub(crate) cancelled: Notify,
    /// Asks its run to stop.
    stop: Stop,
    /// The batch that it runs in, if there are others in it.
    batch: Mutex<Option<Arc<Batch>>>,
}

impl Stage {
    /// Whether a thread has taken it.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// A thread has taken it.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    /// The signal for a run of this attempt alone.
    pub(super) fn stopping(&self) -> &Stop {
        &self.stop
    }

    /// Its answer is not wanted any more: it does not begin, or its run is asked to stop; at once
    /// if it runs alone, otherwise when no answer of its batch is wanted any more.
    pub(crate) fn cancel(&self) {
        self.stop.stop();
        if let Some(batch) = &*self.batch() {
            batch.look();
        }
        self.cancelled.notify_one();
    }

    /// Whether its answer is still wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.stop.is_stopped()
    }

    /// Whether its run goes on for others. The last attempt of a batch that is given up waits for
    /// the end of the run, because its place is not free before.
    pub(crate) fn goes_on_for_others(&self) -> bool {
        self.batch().as_ref().is_some_and(|batch| !batch.stop.is_stopped())
    }

    fn batch(&self) -> MutexGuard<'_, Option<Arc<Batch>>> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attempts that share one run, which is stopped once none of their answers is wanted.
#[derive(Debug)]
pub(super) struct Batch {
    members: Vec<Stop>,
    stop: Stop,
}

impl Batch {
    /// Joins attempts, any of which may be stopped meanwhile.
    pub(super) fn of(stages: &[Arc<Stage>]) -> Arc<Self> {
        let members = stages.iter().map(|stage| stage.stop.clone()).collect();
        let batch = Arc::new(Self { members, stop: Stop::new() });
        for stage in stages {
            *stage.batch() = Some(Arc::clone(&batch));
        }
        // An attempt that was stopped before it had its batch did not look here.
        batch.look();
        batch
    }

    /// The signal for the shared run.
    pub(super) fn stopping(&self) -> &Stop {
        &self.stop
    }

    fn look(&self) {
        if self.members.iter().all(Stop::is_stopped) {
            self.stop.stop();
        }
    }
}
