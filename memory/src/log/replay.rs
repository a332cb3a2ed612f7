//! Replays a log on any source of segments.

use super::{MemoryEvent, MemoryLog};
use crate::error::{Error, Result};
use crate::segments::{RangeId, SegmentLimits, SegmentSource, SegmentStats, Segments};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The final state, with counts of allocations and failures and with high-water marks.
    pub stats: SegmentStats,
    /// The index of the first event whose request failed, and the error.
    pub first_failure: Option<(usize, Error)>,
    /// How many requests that failed in the log succeeded now.
    pub recovered: u64,
    /// The highest external fragmentation after any event, 0 to 1.
    pub fragmentation_max: f64,
    /// The duration of the replay.
    pub elapsed: Duration,
}

impl MemoryLog {
    /// Repeats all events with `limits`, which may differ from the log's own, and segments from
    /// `source`.
    ///
    /// With the log's limits, a source as large as the device, and no dropped events, every range
    /// lies where it was.
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
                // A failed request was never freed, so it is freed at once.
                MemoryEvent::Failed { bytes, owner } => {
                    segments.allocate(*bytes, owner).and_then(|id| {
                        replay.recovered += 1;
                        segments.free(id).map(|()| None)
                    })
                }
                // A range that does not fit now cannot be freed.
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
