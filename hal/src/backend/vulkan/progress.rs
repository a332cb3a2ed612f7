//! Whether a device gets on, as all of its queues show.

use crate::error::Result;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// What a queue has done.
pub(super) trait Progress: std::fmt::Debug + Send + Sync {
    /// The number of the last submission that is done.
    fn done(&self) -> Result<u64>;
}

/// The timelines of a device that are in use.
#[derive(Debug, Default)]
pub(super) struct Timelines(Mutex<Vec<Weak<dyn Progress>>>);

impl Timelines {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<dyn Progress>>> {
        // A panic leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a timeline until it ends.
    pub(super) fn add(&self, timeline: Weak<dyn Progress>) {
        let mut all = self.all();
        all.retain(|it| it.strong_count() > 0);
        all.push(timeline);
    }

    /// A number that differs from an earlier one if a submission was done in between.
    pub(super) fn progress(&self) -> Result<u64> {
        // The lock is not held while timelines end, which drops what they keep.
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        all.iter().try_fold(0u64, |sum, timeline| Ok(sum.wrapping_add(timeline.done()?)))
    }
}
