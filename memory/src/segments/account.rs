//! Who holds what, what has been done so far, and the answer when there is no more.

use slab::Slab;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How many holders a message names before it sums up the others.
const HOLDERS_SHOWN: usize = 8;

/// What an owner has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The label that was passed with each range.
    pub owner: Arc<str>,
    /// How many ranges.
    pub ranges: usize,
    /// Their bytes, rounded up as they are.
    pub bytes: usize,
}

/// What [`super::Segments`] has done so far. Bytes in use are those of ranges as they are rounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentStats {
    /// Ranges handed out.
    pub allocations: u64,
    /// Of those, how many needed no new segment.
    pub hits: u64,
    /// Requests that could not be served.
    pub failures: u64,
    /// Bytes of ranges that are taken.
    pub in_use_bytes: usize,
    /// The most that `in_use_bytes` ever was.
    pub high_water_bytes: usize,
    /// Bytes of all segments.
    pub reserved_bytes: usize,
    /// The most that `reserved_bytes` ever was.
    pub reserved_high_water_bytes: usize,
    /// How many segments there are.
    pub segments: usize,
    /// How many were ever taken from the source.
    pub segments_taken: u64,
    /// The largest range that could be taken without a new segment.
    pub largest_free_bytes: usize,
}

#[allow(clippy::cast_precision_loss, reason = "ratios for people")]
impl SegmentStats {
    /// The share of ranges that needed no new segment, 0 to 1.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.allocations == 0 { 0. } else { self.hits as f64 / self.allocations as f64 }
    }

    /// Bytes that are reserved and not in use.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.reserved_bytes - self.in_use_bytes
    }

    /// External fragmentation: the share of the free bytes that is not in the largest free range,
    /// 0 to 1.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.,
            free => 1. - self.largest_free_bytes as f64 / free as f64,
        }
    }
}

/// Why a range could not be taken: how things stand, and who holds what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes asked for.
    pub bytes: usize,
    /// Who asked.
    pub owner: Arc<str>,
    /// The most that may be reserved.
    pub budget_bytes: usize,
    /// How things stand.
    pub stats: SegmentStats,
    /// Who holds what, the most first.
    pub holders: Vec<Holder>,
}

impl Shortage {
    /// Whether the budget has room enough, though not in one piece.
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

/// Each owner that holds anything, by the number that its ranges keep.
#[derive(Debug, Default)]
pub(super) struct Owners {
    holders: Slab<Holder>,
    numbers: HashMap<Arc<str>, usize>,
    /// The owner of the last range: the next range is often one of its own.
    last: usize,
}

impl Owners {
    /// Notes a range, and answers its owner's number.
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

    /// Forgets a range.
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

    /// Who holds what, the most first.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let mut holders: Vec<Holder> = self.holders.iter().map(|(_, h)| h.clone()).collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.owner.cmp(&b.owner)));
        holders
    }
}
