//! What is due at a time.

use crate::proto::message::AttemptId;
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Something that is due at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Deadline(u64),
    Retry(u64),
    /// The retry budget has a token again.
    Budget,
    /// An attempt may get a rival.
    Hedge(u64, u32),
    /// A breaker may let a probe pass.
    Probe(SessionId, Arc<ModelRef>),
    /// A run reaches its limit.
    RunLimit(SessionId, AttemptId),
    /// The time of a run to stop, after it was asked, is over.
    Hang(SessionId, AttemptId),
    /// Changes that the journal could not take are tried again.
    Journal,
    Membership,
}

/// Timers in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Duration, Timer)>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Duration, timer: Timer) {
        self.due.insert((at, timer));
    }

    pub(super) fn clear(&mut self, at: Duration, timer: Timer) {
        self.due.remove(&(at, timer));
    }

    /// The time of the first timer.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the first timer whose time has come, with that time.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.due.pop_first()
    }
}
