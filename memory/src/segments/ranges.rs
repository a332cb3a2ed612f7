//! Free and taken ranges of several segments: best fit, with free neighbours merged.

use slab::Slab;
use std::collections::BTreeMap;

/// A range in [`Ranges`].
pub(super) type Node = usize;

/// The sort key of a free range for best fit: the smallest comes first, and among equal sizes the
/// lowest, which keeps the ends of segments free. 48 bits hold the bytes, 32 the segment and 48 the
/// offset: comparing one number is faster than comparing three.
type Key = u128;

/// Bits of a key that hold an offset, which bounds the size of segments.
pub(super) const OFFSET_BITS: u32 = 48;
/// Bits of a key below the bytes.
const PLACE_BITS: u32 = 80;

/// The smallest key of a range of `bytes` bytes.
fn first_key(bytes: usize) -> Key {
    (bytes as Key) << PLACE_BITS
}

/// A part of a segment. The ranges of a segment cover it, and no two neighbours are both free.
#[derive(Debug)]
struct Range {
    segment: usize,
    offset: usize,
    bytes: usize,
    previous: Option<Node>,
    next: Option<Node>,
    taken: bool,
}

impl Range {
    fn key(&self) -> Key {
        first_key(self.bytes) | (self.segment as Key) << OFFSET_BITS | self.offset as Key
    }

    fn is_whole_segment(&self) -> bool {
        self.previous.is_none() && self.next.is_none()
    }
}

/// Ranges of all segments. The caller rounds sizes: every given size must be a positive multiple of
/// the alignment.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ranges: Slab<Range>,
    free: BTreeMap<Key, Node>,
    /// Segments without taken ranges.
    idle_segments: usize,
}

impl Ranges {
    /// Adds an entirely free segment.
    pub(super) fn add_segment(&mut self, segment: usize, bytes: usize) -> Node {
        let range = Range { segment, offset: 0, bytes, previous: None, next: None, taken: false };
        let key = range.key();
        let node = self.ranges.insert(range);
        self.free.insert(key, node);
        self.idle_segments += 1;
        node
    }

    /// Removes an idle segment, by its first range; returns whether it was idle.
    pub(super) fn remove_segment(&mut self, first: Node) -> bool {
        let whole = self.ranges.get(first).is_some_and(|r| !r.taken && r.is_whole_segment());
        if whole {
            self.free.remove(&self.ranges.remove(first).key());
            self.idle_segments -= 1;
        }
        whole
    }

    /// Takes `bytes` bytes from the smallest sufficient free range.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Node> {
        let (&key, &node) = self.free.range(first_key(bytes)..).next()?;
        self.take_from(key, node, bytes);
        Some(node)
    }

    /// Like [`Ranges::take`], in the segments for which `allowed` holds.
    pub(super) fn take_in(
        &mut self,
        bytes: usize,
        allowed: impl Fn(usize) -> bool,
    ) -> Option<Node> {
        let mut fitting = self.free.range(first_key(bytes)..);
        let (&key, &node) = fitting.find(|&(_, &node)| allowed(self.ranges[node].segment))?;
        self.take_from(key, node, bytes);
        Some(node)
    }

    /// Takes the front of a free range of at least `bytes` bytes, and keeps its node.
    pub(super) fn take_front(&mut self, node: Node, bytes: usize) -> Node {
        self.take_from(self.ranges[node].key(), node, bytes);
        node
    }

    fn take_from(&mut self, key: Key, node: Node, bytes: usize) {
        self.free.remove(&key);
        let range = &mut self.ranges[node];
        self.idle_segments -= usize::from(range.is_whole_segment());
        range.taken = true;
        let (rest, next) = (range.bytes - bytes, range.next);
        if rest == 0 {
            return;
        }
        range.bytes = bytes;
        let rest = Range {
            segment: range.segment,
            offset: range.offset + bytes,
            bytes: rest,
            previous: Some(node),
            next,
            taken: false,
        };
        let key = rest.key();
        let behind = self.ranges.insert(rest);
        self.ranges[node].next = Some(behind);
        if let Some(next) = next {
            self.ranges[next].previous = Some(behind);
        }
        self.free.insert(key, behind);
    }

    /// Frees a taken range.
    pub(super) fn release(&mut self, node: Node) {
        self.ranges[node].taken = false;
        let mut merged = node;
        if let Some(next) = self.ranges[node].next.filter(|&next| !self.ranges[next].taken) {
            self.free.remove(&self.ranges[next].key());
            self.absorb_next(node);
        }
        if let Some(previous) = self.ranges[node].previous.filter(|&p| !self.ranges[p].taken) {
            self.free.remove(&self.ranges[previous].key());
            self.absorb_next(previous);
            merged = previous;
        }
        let range = &self.ranges[merged];
        self.idle_segments += usize::from(range.is_whole_segment());
        self.free.insert(range.key(), merged);
    }

    /// Merges a range with the next one.
    fn absorb_next(&mut self, node: Node) {
        let Some(next) = self.ranges[node].next else { return };
        let Range { bytes, next: behind, .. } = self.ranges.remove(next);
        let range = &mut self.ranges[node];
        range.bytes += bytes;
        range.next = behind;
        if let Some(behind) = behind {
            self.ranges[behind].previous = Some(node);
        }
    }

    /// Segment, offset and size of a range.
    pub(super) fn place(&self, node: Node) -> (usize, usize, usize) {
        let Range { segment, offset, bytes, .. } = self.ranges[node];
        (segment, offset, bytes)
    }

    /// Whether a range is free.
    pub(super) fn is_free(&self, node: Node) -> bool {
        !self.ranges[node].taken
    }

    /// The next range in the same segment.
    pub(super) fn next(&self, node: Node) -> Option<Node> {
        self.ranges[node].next
    }

    /// The taken ranges of a segment in order, with their sizes, given its first range.
    pub(super) fn taken(&self, first: Node) -> impl Iterator<Item = (Node, usize)> {
        let all = std::iter::successors(Some(first), |&node| self.next(node));
        all.filter(|&node| !self.is_free(node)).map(|node| (node, self.ranges[node].bytes))
    }

    /// The number of segments without taken ranges.
    pub(super) fn idle_segments(&self) -> usize {
        self.idle_segments
    }

    /// The size of the largest free range; 0 if there is none.
    pub(super) fn largest_free_bytes(&self) -> usize {
        self.free.last_key_value().map_or(0, |(_, &node)| self.ranges[node].bytes)
    }
}

#[cfg(test)]
impl Ranges {
    /// Checks the invariants: the ranges of each segment cover it in order, neighbours are not both
    /// free, and the index has exactly the free ones. `segments` are first ranges and sizes.
    pub(super) fn check(&self, segments: impl Iterator<Item = (usize, Node, usize)>) {
        let (mut seen, mut free, mut idle) = (0, 0, 0);
        for (segment, first, bytes) in segments {
            let (mut at, mut offset, mut previous) = (Some(first), 0, None);
            let mut free_before = false;
            while let Some(node) = at {
                let range = &self.ranges[node];
                assert_eq!((range.segment, range.offset), (segment, offset));
                assert_eq!(range.previous, previous);
                assert!(range.bytes > 0 && (range.taken || !free_before), "{range:?}");
                assert_eq!(self.free.get(&range.key()) == Some(&node), !range.taken);
                seen += 1;
                free += usize::from(!range.taken);
                idle += usize::from(!range.taken && range.is_whole_segment());
                free_before = !range.taken;
                offset += range.bytes;
                (previous, at) = (at, range.next);
            }
            assert_eq!(offset, bytes, "segment {segment} is covered");
        }
        assert_eq!((self.ranges.len(), self.free.len()), (seen, free));
        assert_eq!(self.idle_segments, idle);
    }
}
