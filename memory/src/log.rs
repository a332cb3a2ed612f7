//! A log of allocations and frees. It can be written to a file and replayed anywhere, so that a
//! user's shortage can be examined without the user's device.

mod replay;
#[cfg(test)]
mod tests;
mod text;

pub use replay::Replay;

use crate::segments::SegmentLimits;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// An event of a pool's ranges, or of its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryEvent {
    /// A range was handed out.
    Taken {
        /// The range's number, unique in the log.
        range: u64,
        /// Bytes asked for.
        bytes: usize,
        /// The label of the holder.
        owner: Arc<str>,
    },
    /// A range was given back.
    Freed {
        /// The range's number.
        range: u64,
    },
    /// A request failed.
    Failed {
        /// Bytes asked for.
        bytes: usize,
        /// The label of the requester.
        owner: Arc<str>,
    },
    /// A phase begins, and the one before it ends.
    Phase {
        /// Its name.
        name: Arc<str>,
    },
    /// The host's RAM that an owner holds now.
    Host {
        /// The owner: a pool or the process.
        owner: Arc<str>,
        /// The amount.
        bytes: usize,
    },
}

/// The last events of a pool, and the ranges that were held before the first of them.
///
/// The log keeps `capacity` events. Older events are folded into the held ranges, so that a log of
/// any length can be replayed: it starts with the same ranges, though they may lie elsewhere.
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

    /// Logs an event at `time` after the start of the log.
    pub fn push(&mut self, time: Duration, event: MemoryEvent) {
        self.events.push_back((time, event));
        if self.events.len() > self.capacity
            && let Some((_, oldest)) = self.events.pop_front()
        {
            self.dropped += 1;
            self.fold(oldest);
        }
    }

    /// Folds an event into the ranges held before the first event.
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

    /// How many events were dropped because of their age.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
