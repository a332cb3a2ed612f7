//! Which bytes of a queue's staging memory are in use: a ring, whose parts are freed in the order
//! in which they were taken.

use std::collections::VecDeque;

/// A ring of bytes. Positions count on and are never reset, so that a part that was just freed is
/// the last to be taken again.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: u64,
    /// The position of the next part.
    head: u64,
    /// The position of the first byte in use.
    tail: u64,
    /// The submissions that use parts, and the position after their parts.
    marks: VecDeque<(u64, u64)>,
}

impl Ring {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, head: 0, tail: 0, marks: VecDeque::new() }
    }

    /// Takes `bytes` bytes in one piece; `None` while too many are in use. A part of at most half
    /// the ring always fits a ring of which nothing is in use.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        self.has_room(bytes).then(|| {
            self.head = self.end(bytes);
            (self.head - bytes) % self.bytes
        })
    }

    /// Whether [`Self::take`] has so many bytes.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.bytes && self.end(bytes) - self.tail <= self.bytes
    }

    /// The position after a next part of so many bytes.
    fn end(&self, bytes: u64) -> u64 {
        let at = self.head % self.bytes;
        // A part that would reach beyond the end begins at the start.
        let skipped = if at + bytes > self.bytes { self.bytes - at } else { 0 };
        self.head + skipped + bytes
    }

    /// Notes that every part taken so far is free once submission `value` is done.
    pub(super) fn mark(&mut self, value: u64) {
        self.marks.push_back((value, self.head));
    }

    /// Frees the parts of all submissions up to `value`.
    pub(super) fn release(&mut self, value: u64) {
        while let Some((_, end)) = self.marks.pop_front_if(|(marked, _)| *marked <= value) {
            self.tail = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_freed_in_order_and_lie_in_one_piece() {
        let mut ring = Ring::new(100);
        assert_eq!((ring.take(40), ring.take(40), ring.take(30)), (Some(0), Some(40), None));
        ring.mark(1);
        assert_eq!((ring.take(20), ring.take(1)), (Some(80), None));
        ring.mark(2);
        ring.release(0);
        assert_eq!(ring.take(1), None);
        ring.release(1);
        assert_eq!((ring.take(80), ring.take(1)), (Some(0), None));
        ring.mark(3);
        ring.release(3);
        // 20 bytes before the end are skipped, and in use until the part behind them is freed.
        assert_eq!((ring.take(30), ring.take(51), ring.take(50)), (Some(0), None, Some(30)));
        assert_eq!(ring.take(101), None);
    }

    #[test]
    fn a_freed_part_is_the_last_to_be_taken_again() {
        let mut ring = Ring::new(80);
        assert_eq!(ring.take(20), Some(0));
        ring.mark(1);
        ring.release(1);
        assert_eq!([20, 20, 20].map(|it| ring.take(it)), [20, 40, 60].map(Some));
    }
}
