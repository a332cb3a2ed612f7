//! Defragmentation: movable ranges slide to the front of their segment, and nearly empty segments
//! are emptied into others.

use super::bins::Bins;
use super::ranges::{Node, Ranges};
use super::{At, RangeId, Segment, SegmentSource, Segments, Taken};
use crate::error::Result;
use slab::Slab;
use std::collections::{HashMap, HashSet};

/// Sliding frees room that blocked ranges can pass through, so it is repeated; more passes gain
/// little.
const PASSES: usize = 4;

/// Bytes to copy because their range moves.
#[derive(Debug)]
pub struct SegmentCopy<'a, T> {
    /// The source segment.
    pub from: &'a T,
    /// The offset in the source.
    pub from_offset: usize,
    /// The target segment, possibly the same: the places never overlap.
    pub to: &'a T,
    /// The offset in the target.
    pub to_offset: usize,
    /// The number of bytes.
    pub bytes: usize,
}

/// The result of a defragmentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// The number of copies.
    pub copies: usize,
    /// The copied bytes.
    pub copied_bytes: usize,
}

/// Moves ranges. Each move takes the new place, copies, and frees the old place, so that a failed
/// copy changes nothing.
struct Mover<'a, T, C> {
    ranges: &'a mut Ranges,
    segments: &'a Slab<Segment<T>>,
    bins: &'a mut Bins,
    taken: &'a mut Slab<Taken>,
    copy: C,
    /// The content of each movable range.
    content: HashMap<Node, Content>,
    done: Defragmented,
}

#[derive(Clone, Copy)]
enum Content {
    Taken(usize),
    Block(usize),
}

impl<S: SegmentSource> Segments<S> {
    /// Moves ranges for which `movable` holds, so that fewer free bytes lie in holes. `copy` copies
    /// the bytes in order: later copies rely on earlier ones. Idle segments are then returned as
    /// after [`Segments::free`]. A block of small ranges moves if all of them may.
    ///
    /// # Errors
    /// The first error of `copy`; earlier moves remain.
    pub fn defragment(
        &mut self,
        movable: impl Fn(RangeId) -> bool,
        copy: impl FnMut(SegmentCopy<'_, S::Segment>) -> Result<()>,
    ) -> Result<Defragmented> {
        let content = self.movable_content(movable);
        let mut mover = Mover {
            ranges: &mut self.ranges,
            segments: &self.segments,
            bins: &mut self.bins,
            taken: &mut self.taken,
            copy,
            content,
            done: Defragmented::default(),
        };
        let outcome = mover.run();
        let done = mover.done;
        self.collect(self.limits.idle_bytes_max);
        outcome.map(|()| done)
    }

    fn movable_content(&self, movable: impl Fn(RangeId) -> bool) -> HashMap<Node, Content> {
        let (mut content, mut pinned) = (HashMap::new(), HashSet::new());
        for (index, taken) in &self.taken {
            let (node, inside) = match taken.at {
                At::Range(node) => (node, Content::Taken(index)),
                At::Slot(slot) => (self.bins.place(slot).0, Content::Block(slot.block)),
            };
            content.insert(node, inside);
            if !movable(RangeId { serial: taken.serial, index }) {
                pinned.insert(node);
            }
        }
        content.retain(|node, _| !pinned.contains(node));
        content
    }
}

impl<T, C: FnMut(SegmentCopy<'_, T>) -> Result<()>> Mover<'_, T, C> {
    fn run(&mut self) -> Result<()> {
        for _ in 0..PASSES {
            let copies = self.done.copies;
            for (_, segment) in self.segments {
                self.slide(segment.first)?;
            }
            if self.done.copies == copies {
                break;
            }
        }
        self.empty_segments()
    }

    /// Moves each range of a segment into the gap before it.
    fn slide(&mut self, first: Node) -> Result<()> {
        let (mut at, mut gap) = (Some(first), None);
        while let Some(node) = at {
            let mut behind = node;
            if self.ranges.is_free(node) {
                gap = Some(node);
            } else if let Some(free) = gap.take()
                && self.content.contains_key(&node)
                && let Some(moved) = self.move_into_gap(node, free)?
            {
                behind = moved;
            }
            at = self.ranges.next(behind);
        }
        Ok(())
    }

    /// Moves a range to the start of the gap before it. If the gap is smaller than the range, it
    /// moves through a free range elsewhere, because a copy may not overlap itself; `None` if there
    /// is none.
    fn move_into_gap(&mut self, node: Node, gap: Node) -> Result<Option<Node>> {
        let bytes = self.ranges.place(node).2;
        if self.ranges.place(gap).2 >= bytes {
            let target = self.ranges.take_front(gap, bytes);
            return self.relocate(node, target).map(Some);
        }
        let Some(between) = self.ranges.take(bytes) else { return Ok(None) };
        let between = self.relocate(node, between)?;
        // The gap and the old place are merged now, and keep the gap's node.
        let target = self.ranges.take_front(gap, bytes);
        self.relocate(between, target).map(Some)
    }

    /// Empties segments into the others, the least used first, as long as all their ranges may move
    /// and find places.
    fn empty_segments(&mut self) -> Result<()> {
        let taken_bytes = |(segment, entry): (usize, &Segment<T>)| {
            let bytes: usize = self.ranges.taken(entry.first).map(|(_, bytes)| bytes).sum();
            (bytes, segment)
        };
        let mut order: Vec<(usize, usize)> = self.segments.iter().map(taken_bytes).collect();
        order.sort_unstable();
        // Emptied segments take no ranges.
        let mut emptied = HashSet::new();
        for (_, segment) in order {
            let Some(entry) = self.segments.get(segment) else { continue };
            let mut nodes: Vec<(Node, usize)> = self.ranges.taken(entry.first).collect();
            nodes.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
            emptied.insert(segment);
            let Some(targets) = self.places_for(&nodes, &emptied) else {
                emptied.remove(&segment);
                continue;
            };
            let mut targets = targets.into_iter();
            for ((node, _), target) in nodes.into_iter().zip(&mut targets) {
                if let Err(error) = self.relocate(node, target) {
                    targets.for_each(|target| self.ranges.release(target));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes a place for each of the ranges in segments that are not `emptied`, or none at all.
    fn places_for(
        &mut self,
        nodes: &[(Node, usize)],
        emptied: &HashSet<usize>,
    ) -> Option<Vec<Node>> {
        if !nodes.iter().all(|(node, _)| self.content.contains_key(node)) {
            return None;
        }
        let mut targets = Vec::with_capacity(nodes.len());
        for &(_, bytes) in nodes {
            if let Some(target) = self.ranges.take_in(bytes, |other| !emptied.contains(&other)) {
                targets.push(target);
            } else {
                targets.into_iter().for_each(|target| self.ranges.release(target));
                return None;
            }
        }
        Some(targets)
    }

    /// Moves the content of a range to another taken range, and returns the latter.
    fn relocate(&mut self, node: Node, target: Node) -> Result<Node> {
        let (from, from_offset, bytes) = self.ranges.place(node);
        let (to, to_offset, _) = self.ranges.place(target);
        if let (Some(from), Some(to)) = (self.segments.get(from), self.segments.get(to)) {
            let (from, to) = (&from.storage, &to.storage);
            let copy = SegmentCopy { from, from_offset, to, to_offset, bytes };
            if let Err(error) = (self.copy)(copy) {
                self.ranges.release(target);
                return Err(error);
            }
        }
        self.done.copies += 1;
        self.done.copied_bytes += bytes;
        if let Some(content) = self.content.remove(&node) {
            match content {
                Content::Taken(index) => self.taken[index].at = At::Range(target),
                Content::Block(block) => self.bins.move_block(block, target),
            }
            self.content.insert(target, content);
        }
        self.ranges.release(node);
        Ok(target)
    }
}
