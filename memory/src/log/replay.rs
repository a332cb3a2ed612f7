//! A log once more, on any source of segments.

use super::{MemoryEvent, MemoryLog};
use crate::error::{Error, Result};
use crate::segments::{RangeId, SegmentLimits, SegmentSource, SegmentStats, Segments};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What a replay showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// How things stand at the end; with it allocations, failures and high-water marks.
    pub stats: SegmentStats,
    /// The event, counted from 0, whose request was the first to fail, and why.
    pub first_failure: Option<(usize, Error)>,
    /// How many requests failed when the log was written and did not now.
    pub recovered: u64,
    /// The highest external fragmentation after any event, 0 to 1.
    pub fragmentation_max: f64,
    /// How long it took.
    pub elapsed: Duration,
}

impl MemoryLog {
    /// Does everything again with `limits`, which may be others than the log's own, and segments
    /// from `source`.
    ///
    /// With the log's limits, a source that has as much as the device had, and no event dropped,
    /// every range lies where it lay.
    ///
    /// ```
    /// # use lgp_memory::{MemoryLog, SegmentLimits, SimulatedDevice};
    /// # use std::time::Duration;
    /// let text = "event,time_us,range,bytes,owner\n\
    ///             budget_bytes,,,1048576,\nsegment_bytes_max,,,1048576,\n\
    ///             segment_bytes,,,1048576,\nalignment_bytes,,,512,\nidle_bytes_max,,,1048576,\n\
    ///             taken,10,0,1000000,weights\ntaken,12,1,100000,scratch\n";
    /// let log = MemoryLog::read_csv(text.as_bytes())?;
    /// let replay = log.replay(log.limits(), SimulatedDevice::new(1 << 20, 1 << 20))?;
    /// assert_eq!(replay.first_failure.map(|(event, _)| event), Some(1));
    /// # Ok::<(), lgp_memory::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SegmentLimit`] for limits that contradict themselves.
    pub fn replay(&self, limits: SegmentLimits, source: impl SegmentSource) -> Result<Replay> {
        let mut segments = Segments::new(limits, source)?;
        let mut live: HashMap<u64, RangeId> = HashMap::new();
        let mut replay = Replay {
            stats: SegmentStats::default(),
            first_failure: None,
            recovered: 0,
            fragmentation_max: 0.,
            elapsed: Duration::ZERO,
        };
        let begin = Instant::now();
        for (range, bytes, owner) in self.held() {
            if let Ok(id) = segments.allocate(bytes, owner) {
                live.insert(range, id);
            }
        }
        for (at, (_, event)) in self.events().enumerate() {
            let taken = match event {
                MemoryEvent::Taken { range, bytes, owner } => {
                    segments.allocate(*bytes, owner).map(|id| live.insert(*range, id))
                }
                // What did not fit then, nobody gave back.
                MemoryEvent::Failed { bytes, owner } => {
                    segments.allocate(*bytes, owner).and_then(|id| {
                        replay.recovered += 1;
                        segments.free(id).map(|()| None)
                    })
                }
                // What does not fit now cannot be given back.
                MemoryEvent::Freed { range } => match live.remove(range) {
                    Some(id) => segments.free(id).map(|()| None),
                    None => Ok(None),
                },
                MemoryEvent::Phase { .. } | MemoryEvent::Host { .. } => Ok(None),
            };
            if let Err(error) = taken
                && replay.first_failure.is_none()
            {
                replay.first_failure = Some((at, error));
            }
            let fragmentation = segments.stats().fragmentation();
            replay.fragmentation_max = replay.fragmentation_max.max(fragmentation);
        }
        replay.stats = segments.stats();
        replay.elapsed = begin.elapsed();
        Ok(replay)
    }
}
