//! Ranges of addresses in a few large segments: best fit for large ones, bins for small ones.
//!
//! Nothing here touches the bytes. The source of segments is a parameter, so that the same code
//! runs on a device's memory, in simulations, and in the replay of a log.

mod account;
mod bins;
mod limits;
mod ranges;
mod relocate;
#[cfg(test)]
mod relocate_tests;
mod simulated;
#[cfg(test)]
mod tests;

pub use account::{Holder, SegmentStats, Shortage};
pub use limits::SegmentLimits;
pub use relocate::{Defragmented, SegmentCopy};
pub use simulated::{SimulatedDevice, SimulatedSegment};

use crate::error::{Error, Result};
use account::Owners;
use bins::{Bins, Slot};
use ranges::{Node, Ranges};
use slab::Slab;
use std::sync::Arc;

/// A source of segments.
pub trait SegmentSource {
    /// The handle of a segment. Dropping it returns the segment's bytes.
    type Segment;

    /// A segment of `bytes` bytes.
    ///
    /// # Errors
    /// When the source has no such segment.
    fn segment(&mut self, bytes: usize) -> Result<Self::Segment>;
}

/// Identifies a range. Ids are unique within one [`Segments`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeId {
    serial: u64,
    index: usize,
}

impl RangeId {
    /// The number of the request for this range, from 0.
    #[must_use]
    pub fn serial(self) -> u64 {
        self.serial
    }
}

/// The location of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The segment. Its number is reused after it was returned.
    pub segment: usize,
    /// The offset in it, a multiple of the alignment.
    pub offset: usize,
    /// The size, rounded up.
    pub bytes: usize,
}

#[derive(Debug)]
struct Segment<T> {
    bytes: usize,
    first: Node,
    storage: T,
}

/// A taken range.
#[derive(Debug)]
struct Taken {
    serial: u64,
    owner: usize,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    Range(Node),
    Slot(Slot),
}

/// Hands out ranges of segments, which it takes from a source as needed.
///
/// Sizes are rounded up to the alignment. Ranges of up to 16 times the alignment come from blocks
/// of 64 equal slots in constant time. Larger ones are the best fit among the free ranges of all
/// segments, and free neighbours are merged. Small ranges are rounded up by less than a quarter,
/// large ones only to the alignment.
///
/// ```
/// use lgp_memory::{SegmentLimits, Segments, SimulatedDevice};
/// let device = SimulatedDevice::new(8 << 30, 2 << 30);
/// let mut segments = Segments::new(SegmentLimits::new(8 << 30, 2 << 30), device)?;
/// let weights = segments.allocate(100 << 20, "weights")?;
/// assert_eq!(segments.place(weights)?.offset, 0);
/// segments.free(weights)?;
/// assert_eq!(segments.stats().in_use_bytes, 0);
/// # Ok::<(), lgp_memory::Error>(())
/// ```
#[derive(Debug)]
pub struct Segments<S: SegmentSource> {
    limits: SegmentLimits,
    source: S,
    segments: Slab<Segment<S::Segment>>,
    ranges: Ranges,
    bins: Bins,
    taken: Slab<Taken>,
    owners: Owners,
    serial: u64,
    stats: SegmentStats,
}

impl<S: SegmentSource> Segments<S> {
    /// Starts without segments; they are taken from `source` within `limits`.
    ///
    /// # Errors
    /// [`Error::SegmentLimit`] for limits that contradict themselves.
    pub fn new(limits: SegmentLimits, source: S) -> Result<Self> {
        let limits = limits.checked()?;
        Ok(Self {
            limits,
            source,
            segments: Slab::new(),
            ranges: Ranges::default(),
            bins: Bins::new(limits.alignment_bytes),
            taken: Slab::new(),
            owners: Owners::default(),
            serial: 0,
            stats: SegmentStats::default(),
        })
    }

    /// Takes a range of `bytes` bytes. `owner` is a short label of the holder, such as `weights`;
    /// messages and profiles sum up by it. An empty range takes the alignment.
    ///
    /// # Errors
    /// [`Error::RangeTooLarge`] if no segment can hold it, [`Error::Shortage`] if there is no room
    /// now, and the source's own error if its device is lost. After an error nothing has changed, except that idle segments may have been
    /// returned.
    pub fn allocate(&mut self, bytes: usize, owner: &str) -> Result<RangeId> {
        let segment_bytes_max = self.limits.segment_bytes_max;
        let class = self.bins.class(bytes);
        let rounded = match class {
            Some(class) => Some(self.bins.slot_bytes(class)),
            None => bytes.checked_next_multiple_of(self.limits.alignment_bytes),
        };
        let Some(rounded) = rounded.filter(|&rounded| rounded <= segment_bytes_max) else {
            self.stats.failures += 1;
            return Err(Error::RangeTooLarge { bytes, segment_bytes_max });
        };
        let segments_before = self.stats.segments_taken;
        let slot = class.and_then(|class| self.take_slot(class));
        let at = match slot {
            Some(slot) => At::Slot(slot),
            None => match self.take_range(rounded) {
                Ok(node) => At::Range(node),
                Err(mut refusal) => {
                    self.stats.failures += 1;
                    if let Some(lost) = refusal.take_if(|error| error.is_device_lost()) {
                        return Err(lost);
                    }
                    let shortage = Box::new(self.shortage(bytes, owner));
                    return Err(Error::Shortage { shortage, refusal: refusal.map(Box::new) });
                }
            },
        };
        let serial = self.serial;
        self.serial += 1;
        let owner = self.owners.add(owner, rounded);
        let index = self.taken.insert(Taken { serial, owner, at });
        let stats = &mut self.stats;
        stats.allocations += 1;
        stats.hits += u64::from(stats.segments_taken == segments_before);
        stats.in_use_bytes += rounded;
        stats.high_water_bytes = stats.high_water_bytes.max(stats.in_use_bytes);
        Ok(RangeId { serial, index })
    }

    /// Frees a range.
    ///
    /// # Errors
    /// [`Error::NoSuchRange`] when the range was freed already, or belongs to another [`Segments`].
    pub fn free(&mut self, id: RangeId) -> Result<()> {
        let at = self.find(id)?.at;
        let bytes = self.place_of(at).bytes;
        let Taken { owner, .. } = self.taken.remove(id.index);
        self.owners.remove(owner, bytes);
        self.stats.in_use_bytes -= bytes;
        let range = match at {
            At::Range(node) => Some(node),
            At::Slot(slot) => self.bins.release(slot),
        };
        if let Some(node) = range {
            self.ranges.release(node);
        }
        self.collect(self.limits.idle_bytes_max);
        Ok(())
    }

    /// The location of a range.
    ///
    /// # Errors
    /// As [`Segments::free`].
    pub fn place(&self, id: RangeId) -> Result<Place> {
        Ok(self.place_of(self.find(id)?.at))
    }

    /// Every taken range with its location and its owner.
    pub fn taken(&self) -> impl Iterator<Item = (RangeId, Place, &Arc<str>)> {
        self.taken.iter().map(|(index, taken)| {
            (
                RangeId { serial: taken.serial, index },
                self.place_of(taken.at),
                self.owners.label(taken.owner),
            )
        })
    }

    /// The handle of a segment.
    #[must_use]
    pub fn segment(&self, number: usize) -> Option<&S::Segment> {
        self.segments.get(number).map(|segment| &segment.storage)
    }

    /// Returns every segment without taken ranges.
    pub fn release_idle(&mut self) {
        self.collect(0);
    }

    /// The limits, after rounding.
    #[must_use]
    pub fn limits(&self) -> SegmentLimits {
        self.limits
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> SegmentStats {
        SegmentStats { largest_free_bytes: self.ranges.largest_free_bytes(), ..self.stats }
    }

    /// All holders with their memory, the largest first.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        self.owners.holders()
    }

    pub(crate) fn shortage(&self, bytes: usize, owner: &str) -> Shortage {
        Shortage {
            bytes,
            owner: owner.into(),
            budget_bytes: self.limits.budget_bytes,
            stats: self.stats(),
            holders: self.holders(),
        }
    }

    fn find(&self, id: RangeId) -> Result<&Taken> {
        let taken = self.taken.get(id.index).filter(|taken| taken.serial == id.serial);
        taken.ok_or(Error::NoSuchRange { serial: id.serial })
    }

    fn place_of(&self, at: At) -> Place {
        match at {
            At::Range(node) => {
                let (segment, offset, bytes) = self.ranges.place(node);
                Place { segment, offset, bytes }
            }
            At::Slot(slot) => {
                let (node, within, bytes) = self.bins.place(slot);
                let (segment, offset, _) = self.ranges.place(node);
                Place { segment, offset: offset + within, bytes }
            }
        }
    }

    /// A slot, if a block has a free one or there is room for another block. Otherwise a range of a
    /// slot's size may still be found.
    fn take_slot(&mut self, class: usize) -> Option<Slot> {
        if let Some(slot) = self.bins.take(class) {
            return Some(slot);
        }
        let bytes = self.bins.block_bytes(class);
        if bytes > self.limits.segment_bytes {
            return None;
        }
        let node = self.take_range(bytes).ok()?;
        self.bins.add(class, node);
        self.bins.take(class)
    }

    /// A range, in a new segment if necessary. The error is the source's, if it was asked.
    fn take_range(&mut self, bytes: usize) -> Result<Node, Option<Error>> {
        if let Some(node) = self.ranges.take(bytes) {
            return Ok(node);
        }
        self.grow(bytes)?;
        self.ranges.take(bytes).ok_or(None)
    }

    /// The rest of the budget for further segments.
    fn room(&self) -> usize {
        let room = self.limits.budget_bytes.saturating_sub(self.stats.reserved_bytes);
        room - room % self.limits.alignment_bytes
    }

    /// Takes another segment that can hold a range of `bytes` bytes.
    fn grow(&mut self, bytes: usize) -> Result<(), Option<Error>> {
        if self.room() < bytes {
            // Idle segments are too small for this range, and take up the budget for a larger one.
            self.release_idle();
        }
        let room = self.room();
        if room < bytes {
            return Err(None);
        }
        let alignment = self.limits.alignment_bytes;
        let mut size = self.limits.segment_bytes.max(bytes).min(room);
        loop {
            match self.source.segment(size) {
                Ok(storage) => {
                    self.add_segment(size, storage);
                    return Ok(());
                }
                Err(refusal) if size == bytes && self.ranges.idle_segments() == 0 => {
                    return Err(Some(refusal));
                }
                // The source has less than the budget says: first idle segments are returned to it,
                // then smaller segments are tried.
                Err(_) if self.ranges.idle_segments() > 0 => self.release_idle(),
                Err(_) => size = (size / 2 / alignment * alignment).max(bytes),
            }
        }
    }

    fn add_segment(&mut self, bytes: usize, storage: S::Segment) {
        let entry = self.segments.vacant_entry();
        let first = self.ranges.add_segment(entry.key(), bytes);
        entry.insert(Segment { bytes, first, storage });
        let stats = &mut self.stats;
        stats.segments += 1;
        stats.segments_taken += 1;
        stats.reserved_bytes += bytes;
        stats.reserved_high_water_bytes = stats.reserved_high_water_bytes.max(stats.reserved_bytes);
    }

    /// Returns idle segments until at most `idle_bytes_max` bytes are free, or no segment is idle.
    fn collect(&mut self, idle_bytes_max: usize) {
        if self.ranges.idle_segments() == 0 || self.stats.free_bytes() <= idle_bytes_max {
            return;
        }
        let (ranges, stats) = (&mut self.ranges, &mut self.stats);
        self.segments.retain(|_, segment| {
            let idle = stats.free_bytes() > idle_bytes_max && ranges.remove_segment(segment.first);
            if idle {
                stats.segments -= 1;
                stats.reserved_bytes -= segment.bytes;
            }
            !idle
        });
    }
}
