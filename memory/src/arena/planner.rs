//! Assigns each tensor of a run an offset in one block of memory: a pure function of sizes and
//! lifetimes.

use crate::buffer::ALIGNMENT;

/// Planning stops after this many comparisons. If all lifetimes overlap, the cost is quadratic in
/// their number; graphs of real networks stay far below the limit.
const WORK_MAX: usize = 1 << 26;

/// A tensor to be placed: its size, and the steps during which it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Size in bytes.
    pub bytes: usize,
    /// The step that writes it.
    pub first: usize,
    /// The last step that reads it; at least `first`.
    pub last: usize,
}

impl Lifetime {
    /// The bytes that it takes in an arena: whole cache lines.
    fn padded(&self) -> Option<usize> {
        self.bytes.checked_next_multiple_of(ALIGNMENT)
    }
}

/// The order in which tensors are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The largest first, which leaves the small ones to fill gaps.
    BySize,
    /// In the given order.
    Given,
}

/// Offsets in one block of memory, such that no two tensors that live at once overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaPlan {
    /// The offset of each tensor, a multiple of [`ALIGNMENT`].
    pub offsets: Vec<usize>,
    /// Bytes of the block.
    pub bytes: usize,
}

/// Places in several blocks of memory, such that no two tensors that live at once overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPlan {
    /// Block and offset of each tensor. Offsets are multiples of [`ALIGNMENT`], and of any common
    /// divisor of all sizes.
    pub places: Vec<(usize, usize)>,
    /// Bytes of each block.
    pub blocks: Vec<usize>,
}

impl ArenaPlan {
    /// Places tensors one after the other. Each goes into the smallest sufficient gap between
    /// tensors that live at the same time, or behind them ("greedy by size" of Pisarchyk and Lee,
    /// 2020). `None` when sizes overflow, or when the comparisons exceed the limit.
    ///
    /// ```
    /// use lgp_memory::{ArenaPlan, Lifetime, Order};
    /// let life = |bytes, first, last| Lifetime { bytes, first, last };
    /// let plan = ArenaPlan::new(&[life(64, 0, 1), life(128, 1, 2), life(64, 2, 3)], Order::BySize);
    /// assert_eq!(plan.map(|p| (p.bytes, p.offsets)), Some((192, vec![128, 0, 128])));
    /// ```
    #[must_use]
    pub fn new(tensors: &[Lifetime], order: Order) -> Option<Self> {
        let mut turns: Vec<usize> = (0..tensors.len()).collect();
        if order == Order::BySize {
            turns.sort_by_key(|&i| (std::cmp::Reverse(tensors[i].bytes), tensors[i].first));
        }
        let mut index = Index::new(tensors);
        let mut offsets = vec![0; tensors.len()];
        let (mut bytes, mut work) = (0usize, 0usize);
        let mut busy: Vec<(usize, usize)> = Vec::new();
        for i in turns {
            let size = tensors[i].padded()?;
            if size == 0 {
                continue;
            }
            busy.clear();
            index.each_alive_with(&tensors[i], |j| {
                // Sizes were padded when `j` was placed.
                let end = offsets[j] + tensors[j].padded().unwrap_or(0);
                busy.push((offsets[j], end));
            });
            work = work.saturating_add(busy.len());
            if work > WORK_MAX {
                return None;
            }
            busy.sort_unstable();
            offsets[i] = best_offset(&busy, size);
            bytes = bytes.max(offsets[i].checked_add(size)?);
            index.insert(i, &tensors[i]);
        }
        isize::try_from(bytes).ok()?;
        Some(Self { offsets, bytes })
    }

    /// Like [`ArenaPlan::new`] by size, over several blocks of at most `block_bytes_max`, for
    /// devices with a limited buffer size. Tensors that do not fit the first block are planned for
    /// the next. `None` also for a tensor that fits no block.
    #[must_use]
    pub fn in_blocks(tensors: &[Lifetime], block_bytes_max: usize) -> Option<BlockPlan> {
        let mut plan = BlockPlan { places: vec![(0, 0); tensors.len()], blocks: Vec::new() };
        let mut rest: Vec<usize> = (0..tensors.len()).filter(|&i| tensors[i].bytes > 0).collect();
        while !rest.is_empty() {
            let lives: Vec<Lifetime> = rest.iter().map(|&i| tensors[i]).collect();
            let Self { offsets, .. } = Self::new(&lives, Order::BySize)?;
            let block = plan.blocks.len();
            let (mut bytes, mut left) = (0, Vec::new());
            for (&i, offset) in rest.iter().zip(offsets) {
                let end = offset + tensors[i].padded()?;
                if end <= block_bytes_max {
                    plan.places[i] = (block, offset);
                    bytes = bytes.max(end);
                } else {
                    left.push(i);
                }
            }
            if left.len() == rest.len() {
                return None;
            }
            plan.blocks.push(bytes);
            rest = left;
        }
        Some(plan)
    }

    /// The most bytes that live at once: no plan needs less.
    #[must_use]
    pub fn lower_bound(tensors: &[Lifetime]) -> usize {
        Self::peak(tensors).1
    }

    /// The step at which the most bytes live, and their number.
    #[must_use]
    pub fn peak(tensors: &[Lifetime]) -> (usize, usize) {
        let mut events: Vec<(usize, bool, usize)> = Vec::with_capacity(2 * tensors.len());
        for t in tensors {
            let size = t.padded().unwrap_or(usize::MAX);
            events.push((t.first, true, size));
            events.push((t.last.saturating_add(1), false, size));
        }
        // Within a step, ends come before beginnings.
        events.sort_unstable();
        let (mut live, mut most) = (0usize, (0, 0));
        for (step, begins, size) in events {
            live = if begins { live.saturating_add(size) } else { live.saturating_sub(size) };
            if live > most.1 {
                most = (step, live);
            }
        }
        most
    }

    /// Bytes without any reuse.
    #[must_use]
    pub fn naive(tensors: &[Lifetime]) -> usize {
        tensors.iter().fold(0, |n, t| n.saturating_add(t.padded().unwrap_or(usize::MAX)))
    }
}

/// The start of the smallest gap of at least `size` bytes between busy ranges, which are sorted by
/// start; the end of all ranges if there is no gap.
fn best_offset(busy: &[(usize, usize)], size: usize) -> usize {
    let (mut best, mut end) = (None, 0);
    for &(from, to) in busy {
        if let Some(gap) = from.checked_sub(end).filter(|&gap| gap >= size)
            && best.is_none_or(|(smallest, _)| gap < smallest)
        {
            best = Some((gap, end));
        }
        end = end.max(to);
    }
    best.map_or(end, |(_, offset)| offset)
}

/// Placed tensors by the steps of their lives: a segment tree over the steps for "alive at a step",
/// and one list per step for "begins there".
struct Index {
    leaves: usize,
    tree: Vec<Vec<usize>>,
    begins: Vec<Vec<usize>>,
    /// Each distinct first step, in order: tensors begin only there.
    steps: Vec<usize>,
}

impl Index {
    fn new(tensors: &[Lifetime]) -> Self {
        let mut steps: Vec<usize> = tensors.iter().map(|t| t.first).collect();
        steps.sort_unstable();
        steps.dedup();
        let leaves = steps.len().next_power_of_two();
        Self {
            leaves,
            tree: vec![Vec::new(); 2 * leaves],
            begins: vec![Vec::new(); steps.len()],
            steps,
        }
    }

    /// The first and the last of the listed steps that a tensor lives through.
    fn range(&self, t: &Lifetime) -> std::ops::Range<usize> {
        let first = self.steps.partition_point(|&s| s < t.first);
        first..self.steps.partition_point(|&s| s <= t.last).max(first + 1)
    }

    fn insert(&mut self, i: usize, t: &Lifetime) {
        let range = self.range(t);
        self.begins[range.start].push(i);
        let (mut low, mut high) = (range.start + self.leaves, range.end + self.leaves);
        while low < high {
            if low % 2 == 1 {
                self.tree[low].push(i);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.tree[high].push(i);
            }
            (low, high) = (low / 2, high / 2);
        }
    }

    /// Visits every placed tensor that shares a step with `t`, once.
    fn each_alive_with(&self, t: &Lifetime, mut visit: impl FnMut(usize)) {
        let range = self.range(t);
        let mut at = range.start + self.leaves;
        while at > 0 {
            self.tree[at].iter().for_each(|&j| visit(j));
            at /= 2;
        }
        for list in &self.begins[range.start + 1..range.end] {
            list.iter().for_each(|&j| visit(j));
        }
    }
}
