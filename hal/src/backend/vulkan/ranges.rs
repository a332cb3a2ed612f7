//! Which parts of a segment are free: a list of ranges, of which neighbours are joined.

use std::collections::BTreeMap;

/// The free ranges of a segment, by their first byte.
#[derive(Debug)]
pub(super) struct Ranges {
    free: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// A segment without users.
    pub(super) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]), bytes }
    }

    /// Takes `bytes` bytes from the smallest range that has them; returns the first byte.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let fitting = self.free.iter().filter(|(_, length)| **length >= bytes);
        let (&start, &length) = fitting.min_by_key(|(_, length)| **length)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Gives back a range that was taken.
    pub(super) fn give(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            start = before;
        }
        self.free.insert(start, end - start);
    }

    /// Whether nobody uses the segment.
    pub(super) fn is_unused(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_whatever_the_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut ranges = Ranges::new(96);
            let starts = [32, 32, 32].map(|bytes| ranges.take(bytes).expect("fits"));
            assert_eq!((starts, ranges.take(1)), ([0, 32, 64], None));
            for at in order {
                assert!(!ranges.is_unused());
                ranges.give(starts[at], 32);
            }
            assert!(ranges.is_unused(), "{order:?}: {ranges:?}");
            assert_eq!(ranges.take(96), Some(0));
        }
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut ranges = Ranges::new(100);
        let [_, hole, _, small, _] = [10, 30, 10, 20, 10].map(|it| ranges.take(it).expect("fits"));
        ranges.give(hole, 30);
        ranges.give(small, 20);
        assert_eq!(ranges.take(25), Some(hole));
        assert_eq!(ranges.take(20), Some(small), "the first of two that fit exactly");
        assert_eq!(ranges.take(20), Some(80));
        assert_eq!((ranges.take(6), ranges.take(5)), (None, Some(hole + 25)));
    }

    #[test]
    fn ranges_never_overlap_and_all_come_back() {
        let (mut ranges, mut taken, mut state) = (Ranges::new(4096), Vec::new(), 7u64);
        for _ in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (draw, bytes) = (state >> 33, 1 + (state >> 40) % 300);
            if draw % 2 == 0
                && let Some(start) = ranges.take(bytes)
            {
                let apart =
                    |(at, length): &(u64, u64)| start + bytes <= *at || at + length <= start;
                assert!(start + bytes <= 4096 && taken.iter().all(apart));
                taken.push((start, bytes));
            } else if !taken.is_empty() {
                let (start, bytes) = taken.swap_remove(draw as usize % taken.len());
                ranges.give(start, bytes);
            }
        }
        taken.into_iter().for_each(|(start, bytes)| ranges.give(start, bytes));
        assert!(ranges.is_unused(), "{ranges:?}");
    }
}
