//! Excuses for deadlines: times when nothing could end, and changes of clocks.

use std::time::{Duration, Instant};

/// The excuses up to a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::chaos) struct Excused {
    /// Time without a coordinator, or with one that could do nothing.
    pub(super) away: Duration,
    /// By how much clocks were set, in either direction.
    pub(super) set: Duration,
}

impl Excused {
    /// The time in which no work could be done.
    pub(in crate::chaos) fn time(&self) -> Duration {
        self.away
    }
}

/// The excuses so far, and those under way.
#[derive(Debug, Default)]
pub(in crate::chaos) struct Excuse {
    past: Excused,
    /// Clock changes for the next coordinator: the present one keeps its own time until it ends.
    to_come: Duration,
    since: Option<Instant>,
    /// Reasons why nothing can end now.
    reasons: u32,
}

impl Excuse {
    /// Adds a reason why nothing can end.
    pub(in crate::chaos) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.reasons += 1;
    }

    /// Removes a reason.
    pub(in crate::chaos) fn end(&mut self) {
        self.reasons = self.reasons.saturating_sub(1);
        if self.reasons == 0 {
            self.past.away += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            self.past.set += std::mem::take(&mut self.to_come);
        }
    }

    /// A clock was set.
    pub(in crate::chaos) fn set(&mut self, by: Duration) {
        self.past.set += by;
        self.to_come += by;
    }

    /// The excuses so far.
    pub(in crate::chaos) fn so_far(&self) -> Excused {
        let since = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        Excused { away: self.past.away + since, ..self.past }
    }

    /// The excuses since `before`.
    pub(super) fn since(&self, before: Excused) -> Excused {
        let now = self.so_far();
        Excused {
            away: now.away.saturating_sub(before.away),
            set: now.set.saturating_sub(before.set),
        }
    }
}
