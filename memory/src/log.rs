//! A log of what was taken and given back, which can be written to a file and replayed anywhere:
//! somebody's shortage can be looked into without their device.

mod replay;
#[cfg(test)]
mod tests;
mod text;

pub use replay::Replay;

use crate::segments::SegmentLimits;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What happened to the ranges of a pool, and around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryEvent {
    /// A range was handed out.
    Taken {
        /// Its number, which no other range of the log has.
        range: u64,
        /// Bytes asked for.
        bytes: usize,
        /// The label of who holds it.
        owner: Arc<str>,
    },
    /// A range was given back.
    Freed {
        /// Its number.
        range: u64,
    },
    /// A request that could not be served.
    Failed {
        /// Bytes asked for.
        bytes: usize,
        /// The label of who asked.
        owner: Arc<str>,
    },
    /// A phase begins, and the one before it ends.
    Phase {
        /// Its name.
        name: Arc<str>,
    },
    /// So much of the host's RAM somebody has now.
    Host {
        /// Who: a pool, the process.
        owner: Arc<str>,
        /// How much.
        bytes: usize,
    },
}

/// The last events of a pool, and what was held before the first of them.
///
/// As many events are kept as the log was made for. An older one moves into what was held, so
/// that a log of any length can be replayed: then from a state with the same ranges, though they
/// may lie elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLog {
    limits: SegmentLimits,
    capacity: usize,
    held: BTreeMap<u64, (usize, Arc<str>)>,
    events: VecDeque<(Duration, MemoryEvent)>,
    dropped: u64,
}

impl MemoryLog {
    /// A log that keeps `capacity` events of a pool with these limits.
    #[must_use]
    pub fn new(limits: SegmentLimits, capacity: usize) -> Self {
        let (held, events) = (BTreeMap::new(), VecDeque::new());
        Self { limits, capacity, held, events, dropped: 0 }
    }

    /// Notes what happened `time` after the log began.
    pub fn push(&mut self, time: Duration, event: MemoryEvent) {
        self.events.push_back((time, event));
        if self.events.len() > self.capacity
            && let Some((_, oldest)) = self.events.pop_front()
        {
            self.dropped += 1;
            self.fold(oldest);
        }
    }

    /// Adds an event from before the first to what was held.
    pub(crate) fn fold(&mut self, event: MemoryEvent) {
        match event {
            MemoryEvent::Taken { range, bytes, owner } => {
                self.held.insert(range, (bytes, owner));
            }
            MemoryEvent::Freed { range } => {
                self.held.remove(&range);
            }
            MemoryEvent::Failed { .. } | MemoryEvent::Phase { .. } | MemoryEvent::Host { .. } => {}
        }
    }

    /// The limits of the pool.
    #[must_use]
    pub fn limits(&self) -> SegmentLimits {
        self.limits
    }

    /// Number, bytes and owner of each range that was held before the first event.
    pub fn held(&self) -> impl Iterator<Item = (u64, usize, &Arc<str>)> {
        self.held.iter().map(|(&range, (bytes, owner))| (range, *bytes, owner))
    }

    /// The events in order, each with the time since the log began.
    pub fn events(&self) -> impl Iterator<Item = (Duration, &MemoryEvent)> {
        self.events.iter().map(|(time, event)| (*time, event))
    }

    /// How many events were too old to be kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
