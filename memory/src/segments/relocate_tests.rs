//! Defragmentation of segments with real content.

use super::*;
use crate::error::Error;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

const UNIT: usize = 512;
const SEGMENT_UNITS: usize = 64;

/// A source whose segments store a mark for each unit.
struct Marked;

type Marks = Rc<RefCell<Vec<u32>>>;

impl SegmentSource for Marked {
    type Segment = Marks;

    fn segment(&mut self, bytes: usize) -> Result<Marks> {
        Ok(Rc::new(RefCell::new(vec![0; bytes / UNIT])))
    }
}

fn limits() -> SegmentLimits {
    let bytes = SEGMENT_UNITS * UNIT;
    SegmentLimits { idle_bytes_max: usize::MAX, ..SegmentLimits::new(4 * bytes, bytes) }
}

fn copy(copy: SegmentCopy<'_, Marks>) -> Result<()> {
    let SegmentCopy { from, from_offset, to, to_offset, bytes } = copy;
    let (from_unit, units) = (from_offset / UNIT, bytes / UNIT);
    let data = from.borrow()[from_unit..from_unit + units].to_vec();
    assert!(!Rc::ptr_eq(from, to) || from_offset.abs_diff(to_offset) >= bytes, "overlap");
    to.borrow_mut()[to_offset / UNIT..][..units].copy_from_slice(&data);
    Ok(())
}

impl Segments<Marked> {
    fn units(&self, id: RangeId) -> (Marks, std::ops::Range<usize>) {
        let Place { segment, offset, bytes } = self.place(id).unwrap();
        let at = offset / UNIT;
        (Rc::clone(self.segment(segment).unwrap()), at..at + bytes / UNIT)
    }

    fn mark(&self, id: RangeId, mark: u32) {
        let (marks, at) = self.units(id);
        marks.borrow_mut()[at].fill(mark);
    }

    fn has_mark(&self, id: RangeId, mark: u32) -> bool {
        let (marks, at) = self.units(id);
        marks.borrow()[at].iter().all(|&m| m == mark)
    }
}

/// Ranges of random sizes, some of which are freed again.
fn filled(sizes: &[usize], keep: &[bool]) -> (Segments<Marked>, Vec<(RangeId, u32)>) {
    let mut segments = Segments::new(limits(), Marked).unwrap();
    let ids: Vec<_> =
        sizes.iter().map_while(|units| segments.allocate(units * UNIT, "x").ok()).collect();
    let mut live = Vec::new();
    for (mark, (id, keep)) in (1..).zip(ids.into_iter().zip(keep)) {
        if *keep {
            segments.mark(id, mark);
            live.push((id, mark));
        } else {
            segments.free(id).unwrap();
        }
    }
    (segments, live)
}

proptest! {
    /// Nothing is lost or mixed up, fixed ranges stay, and without fixed ranges each segment has
    /// one free range.
    #[test]
    fn content_survives(
        sizes in prop::collection::vec(1usize..30, 1..60),
        keep in prop::collection::vec(prop::bool::weighted(0.6), 60),
        stay in prop::collection::vec(prop::bool::weighted(0.2), 60),
        all_move: bool,
        fail_at in prop::option::of(0usize..20),
    ) {
        let (mut segments, live) = filled(&sizes, &keep);
        let stays = |id: RangeId| !all_move && stay[id.serial() as usize % stay.len()];
        let places: Vec<_> = live.iter().map(|(id, _)| segments.place(*id).unwrap()).collect();
        let before = segments.stats();
        let mut copies = 0;
        let outcome = segments.defragment(|id| !stays(id), |what| {
            copies += 1;
            if Some(copies - 1) == fail_at {
                return Err(Error::OutOfMemory { bytes: what.bytes });
            }
            copy(what)
        });
        segments.check();
        let failed = fail_at.is_some_and(|at| at < copies);
        prop_assert_eq!(outcome.is_err(), failed);
        prop_assert_eq!(segments.stats().in_use_bytes, before.in_use_bytes);
        for ((id, mark), place) in live.iter().zip(places) {
            prop_assert!(segments.has_mark(*id, *mark), "range {}", id.serial());
            prop_assert!(!stays(*id) || segments.place(*id).unwrap() == place);
        }
        prop_assert!(failed || segments.stats().largest_free_bytes >= before.largest_free_bytes);
        for (id, _) in live {
            segments.free(id).unwrap();
        }
        segments.check();
        prop_assert_eq!(segments.stats().in_use_bytes, 0);
    }
}

#[test]
fn holes_become_one_and_segments_empty() {
    // Three segments, of which every second range of 17 units goes.
    let (mut segments, live) =
        filled(&[21; 9], &[true, false, true, false, true, false, true, false, false]);
    assert_eq!(segments.stats().segments, 3);
    let done = segments.defragment(|_| true, copy).unwrap();
    assert!(done.copies > 0 && done.copied_bytes == done.copies * 21 * UNIT, "{done:?}");
    let segment_bytes = SEGMENT_UNITS * UNIT;
    assert_eq!(segments.stats().largest_free_bytes, segment_bytes);
    assert_eq!(segments.ranges.idle_segments(), 1, "four ranges need two segments");
    let again = segments.defragment(|_| true, copy).unwrap();
    assert_eq!(again, Defragmented::default(), "nothing is left to do");
    segments.release_idle();
    assert_eq!(segments.stats().reserved_bytes, 2 * segment_bytes);
    assert!(live.iter().all(|&(id, mark)| segments.has_mark(id, mark)));
}

#[test]
fn small_ranges_move_with_their_block_unless_one_of_them_must_stay() {
    let limits = SegmentLimits::new(1 << 20, 1 << 20);
    for movable in [true, false] {
        let mut segments = Segments::new(limits, Marked).unwrap();
        let hole = segments.allocate(100 * UNIT, "x").unwrap();
        let [a, b] = [1, 2].map(|mark| {
            let id = segments.allocate(1, "small").unwrap();
            segments.mark(id, mark);
            id
        });
        segments.free(hole).unwrap();
        segments.defragment(|id| id == a || movable, copy).unwrap();
        let at = if movable { 0 } else { 100 * UNIT };
        assert_eq!(segments.place(a).unwrap().offset, at);
        assert!(segments.has_mark(a, 1) && segments.has_mark(b, 2));
    }
}
