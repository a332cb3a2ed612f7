//! The holders of memory, the counts, and the report of a shortage.

use slab::Slab;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How many holders a message names before it adds up the others.
const HOLDERS_SHOWN: usize = 8;

/// An owner's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The label that was passed with its ranges.
    pub owner: Arc<str>,
    /// The number of its ranges.
    pub ranges: usize,
    /// Their bytes after rounding up.
    pub bytes: usize,
}

/// Counts of [`super::Segments`]. Bytes in use are those of the rounded ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentStats {
    /// Ranges handed out.
    pub allocations: u64,
    /// Of those, how many needed no new segment.
    pub hits: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Bytes of taken ranges.
    pub in_use_bytes: usize,
    /// The most that `in_use_bytes` ever was.
    pub high_water_bytes: usize,
    /// Bytes of all segments.
    pub reserved_bytes: usize,
    /// The most that `reserved_bytes` ever was.
    pub reserved_high_water_bytes: usize,
    /// The number of segments.
    pub segments: usize,
    /// How many segments were ever taken from the source.
    pub segments_taken: u64,
    /// The largest range that can be taken without a new segment.
    pub largest_free_bytes: usize,
}

#[allow(clippy::cast_precision_loss, reason = "ratios for people")]
impl SegmentStats {
    /// The share of ranges that needed no new segment, 0 to 1.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.allocations == 0 { 0. } else { self.hits as f64 / self.allocations as f64 }
    }

    /// Reserved bytes that are not in use.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.reserved_bytes - self.in_use_bytes
    }

    /// External fragmentation: the share of the free bytes outside the largest free range, 0 to 1.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.,
            free => 1. - self.largest_free_bytes as f64 / free as f64,
        }
    }
}

/// The report of a range that could not be taken: the counts and the holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The requested bytes.
    pub bytes: usize,
    /// The requester.
    pub owner: Arc<str>,
    /// The most that may be reserved.
    pub budget_bytes: usize,
    /// The counts.
    pub stats: SegmentStats,
    /// All holders with their memory, the largest first.
    pub holders: Vec<Holder>,
}

impl Shortage {
    /// Whether the budget has enough room, but not in one piece.
    #[must_use]
    pub fn is_fragmentation(&self) -> bool {
        self.budget_bytes.saturating_sub(self.stats.in_use_bytes) >= self.bytes
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, owner, budget_bytes, stats, holders } = self;
        write!(
            f,
            "{bytes} bytes for {owner:?}: of a budget of {budget_bytes} bytes {} are reserved and \
             {} in use, the largest free range has {}",
            stats.reserved_bytes, stats.in_use_bytes, stats.largest_free_bytes,
        )?;
        for (i, Holder { owner, ranges, bytes }) in holders.iter().take(HOLDERS_SHOWN).enumerate() {
            let lead = if i == 0 { "; held by" } else { "," };
            write!(f, "{lead} {owner:?}: {bytes} bytes in {ranges} ranges")?;
        }
        let others = holders.iter().skip(HOLDERS_SHOWN);
        let (count, bytes) = others.fold((0, 0usize), |(n, sum), h| (n + 1, sum + h.bytes));
        if count > 0 {
            write!(f, ", {count} others: {bytes} bytes")?;
        }
        Ok(())
    }
}

/// Each owner with memory, by the number that its ranges keep.
#[derive(Debug, Default)]
pub(super) struct Owners {
    holders: Slab<Holder>,
    numbers: HashMap<Arc<str>, usize>,
    /// The owner of the last range, which often owns the next one too.
    last: usize,
}

impl Owners {
    /// Adds a range, and returns its owner's number.
    pub(super) fn add(&mut self, owner: &str, bytes: usize) -> usize {
        let same = self.holders.get(self.last).is_some_and(|last| &*last.owner == owner);
        let number = if same { Some(&self.last) } else { self.numbers.get(owner) };
        let number = number.copied().unwrap_or_else(|| {
            let owner: Arc<str> = owner.into();
            let holder = Holder { owner: Arc::clone(&owner), ranges: 0, bytes: 0 };
            let number = self.holders.insert(holder);
            self.numbers.insert(owner, number);
            number
        });
        let holder = &mut self.holders[number];
        holder.ranges += 1;
        holder.bytes += bytes;
        self.last = number;
        number
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, number: usize, bytes: usize) {
        let holder = &mut self.holders[number];
        holder.ranges -= 1;
        holder.bytes -= bytes;
        if holder.ranges == 0 {
            self.numbers.remove(&self.holders.remove(number).owner);
        }
    }

    /// The label of an owner.
    pub(super) fn label(&self, number: usize) -> &Arc<str> {
        &self.holders[number].owner
    }

    /// All holders with their memory, the largest first.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self.holders.iter().map(|(_, h)| h.clone()).collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.owner.cmp(&b.owner)));
        holders
    }
}
