//! Traces against a plain model, and cases that the model does not reach.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn segments(limits: SegmentLimits) -> Segments<SimulatedDevice> {
    let device = SimulatedDevice::new(limits.budget_bytes, limits.segment_bytes_max);
    Segments::new(limits, device).unwrap()
}

/// 8 MiB in segments of 1 MiB, or up to 4 MiB where a range needs it.
fn small_limits() -> SegmentLimits {
    SegmentLimits { segment_bytes: MIB, ..SegmentLimits::new(8 * MIB, 4 * MIB) }
}

impl<S: SegmentSource> Segments<S> {
    pub(super) fn check(&self) {
        self.ranges.check(self.segments.iter().map(|(i, s)| (i, s.first, s.bytes)));
        let reserved: usize = self.segments.iter().map(|(_, segment)| segment.bytes).sum();
        assert_eq!(
            (self.stats.segments, self.stats.reserved_bytes),
            (self.segments.len(), reserved)
        );
        let holders = self.holders();
        let held: usize = holders.iter().map(|holder| holder.bytes).sum();
        let ranges: usize = holders.iter().map(|holder| holder.ranges).sum();
        assert_eq!((held, ranges), (self.stats.in_use_bytes, self.taken.len()));
    }
}

/// The taken bytes as a plain map from segment and offset to the end.
#[derive(Default)]
struct Model(BTreeMap<(usize, usize), usize>);

impl Model {
    fn take(&mut self, place: Place, segment_bytes: usize) {
        let Place { segment, offset, bytes } = place;
        assert!(offset + bytes <= segment_bytes, "{place:?} leaves its segment");
        let before = self.0.range(..(segment, offset + bytes)).next_back();
        let apart = before.is_none_or(|(&(other, _), &end)| other < segment || end <= offset);
        assert!(apart, "{place:?} overlaps {before:?}");
        self.0.insert((segment, offset), offset + bytes);
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|((_, offset), end)| end - offset).sum()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take { bytes: usize, owner: &'static str },
    Free(prop::sample::Index),
    ReleaseIdle,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![0..9 * KIB, 0..200 * KIB, 0..5 * MIB];
    let owner = prop::sample::select(vec!["weights", "activations", "scratch"]);
    prop_oneof![
        10 => (bytes, owner).prop_map(|(bytes, owner)| Step::Take { bytes, owner }),
        8 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => Just(Step::ReleaseIdle),
    ]
}

proptest! {
    /// No two ranges share a byte, none exceeds its segment, sums agree, limits hold, and when
    /// everything is free again each segment is one range.
    #[test]
    fn traces_agree_with_a_plain_model(
        steps in prop::collection::vec(step(), 1..200),
        alignment in prop::sample::select(vec![256, 512, 4096]),
        idle_bytes_max in prop::sample::select(vec![0, 2 * MIB, usize::MAX]),
    ) {
        let limits =
            SegmentLimits { alignment_bytes: alignment, idle_bytes_max, ..small_limits() };
        let mut segments = segments(limits);
        let (mut model, mut live) = (Model::default(), Vec::new());
        for step in steps {
            match step {
                Step::Take { bytes, owner } => match segments.allocate(bytes, owner) {
                    Ok(id) => {
                        let place = segments.place(id).unwrap();
                        prop_assert!(place.bytes >= bytes.max(1));
                        prop_assert!(place.offset.is_multiple_of(alignment));
                        prop_assert!(place.bytes.is_multiple_of(alignment));
                        let most = bytes + bytes / 4 + alignment;
                        prop_assert!(place.bytes <= most, "{} for {}", place.bytes, bytes);
                        model.take(place, segments.segments[place.segment].bytes);
                        live.push((id, place));
                    }
                    Err(Error::RangeTooLarge { .. }) => prop_assert!(bytes > 4 * MIB),
                    Err(Error::Shortage { shortage, .. }) => {
                        let fits = segments.stats().largest_free_bytes >= bytes;
                        prop_assert!(!fits, "{}", shortage);
                    }
                    Err(error) => prop_assert!(false, "{}", error),
                },
                Step::Free(which) if !live.is_empty() => {
                    let (id, place) = live.swap_remove(which.index(live.len()));
                    prop_assert_eq!(segments.place(id), Ok(place), "ranges stay where they are");
                    segments.free(id).unwrap();
                    model.0.remove(&(place.segment, place.offset));
                    prop_assert!(segments.free(id).is_err(), "twice");
                    let stats = segments.stats();
                    let idle = segments.ranges.idle_segments();
                    prop_assert!(stats.free_bytes() <= idle_bytes_max || idle == 0);
                }
                Step::Free(_) => {}
                Step::ReleaseIdle => segments.release_idle(),
            }
            segments.check();
            let stats = segments.stats();
            prop_assert_eq!(stats.in_use_bytes, model.bytes());
            prop_assert!(stats.reserved_bytes <= limits.budget_bytes);
            prop_assert!((0. ..=1.).contains(&stats.fragmentation()));
        }
        for (id, _) in live {
            segments.free(id).unwrap();
        }
        segments.check();
        prop_assert_eq!(segments.ranges.idle_segments(), segments.segments.len());
        prop_assert_eq!(segments.stats().in_use_bytes, 0);
        segments.release_idle();
        prop_assert_eq!(segments.stats().reserved_bytes, 0);
    }
}

#[test]
fn best_fit_takes_the_smallest_hole() {
    let mut s = segments(SegmentLimits::new(64 * MIB, 64 * MIB));
    let sizes = [3, 1, 2, 1, 5, 1];
    let ids = sizes.map(|n| s.allocate(n * MIB, "x").unwrap());
    for hole in [0, 2, 4] {
        s.free(ids[hole]).unwrap();
    }
    for (bytes, offset) in [(2 * MIB, 4 * MIB), (2 * MIB, 0), (4 * MIB, 7 * MIB), (MIB, 2 * MIB)] {
        let id = s.allocate(bytes, "y").unwrap();
        assert_eq!(s.place(id).unwrap().offset, offset, "{bytes}");
    }
}

#[test]
fn small_ranges_share_a_block() {
    let mut s = segments(small_limits());
    let ids: Vec<_> = (0..65).map(|_| s.allocate(100, "bias").unwrap()).collect();
    let places: Vec<_> = ids.iter().map(|&id| s.place(id).unwrap()).collect();
    assert!(places[..64].iter().zip(0..).all(|(p, i)| p.offset == 512 * i && p.bytes == 512));
    assert_eq!(places[64].offset, 64 * 512, "a second block");
    s.free(ids[7]).unwrap();
    s.free(ids[64]).unwrap();
    let id = s.allocate(512, "bias").unwrap();
    assert_eq!(s.place(id).unwrap().offset, 512 * 7);
    let other = s.allocate(513, "bias").unwrap();
    assert_eq!(s.place(other).unwrap().offset, 64 * 512, "another class, where the block was");
}

#[test]
fn a_small_range_is_found_where_no_block_fits() {
    let limits =
        SegmentLimits { segment_bytes: 64 * KIB, ..SegmentLimits::new(64 * KIB, 64 * KIB) };
    let mut s = segments(limits);
    s.allocate(60 * KIB, "weights").unwrap();
    for _ in 0..8 {
        s.allocate(512, "bias").unwrap();
    }
    assert!(matches!(s.allocate(1, "bias"), Err(Error::Shortage { .. })));
    s.check();
}

#[test]
fn segments_are_as_large_as_needed_and_no_larger_than_allowed() {
    let mut s = segments(small_limits());
    s.allocate(3 * MIB, "a").unwrap();
    assert_eq!(s.stats().reserved_bytes, 3 * MIB);
    s.allocate(100 * KIB, "a").unwrap();
    assert_eq!(s.stats().reserved_bytes, 4 * MIB);
    let error = s.allocate(4 * MIB + 1, "weights").unwrap_err();
    assert_eq!(error, Error::RangeTooLarge { bytes: 4 * MIB + 1, segment_bytes_max: 4 * MIB });
    for bytes in [usize::MAX, usize::MAX - 511, isize::MAX as usize] {
        assert!(matches!(s.allocate(bytes, "a"), Err(Error::RangeTooLarge { .. })));
    }
    assert_eq!(s.stats().failures, 4);
}

#[test]
fn a_shortage_says_who_holds_what() {
    let mut s = segments(small_limits());
    let kept = s.allocate(3 * MIB, "weights").unwrap();
    for i in 0..4 {
        s.allocate(MIB, if i % 2 == 0 { "arena" } else { "cache" }).unwrap();
    }
    let error = s.allocate(2 * MIB, "scratch").unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: cannot take 2097152 bytes for \"scratch\": of a budget of 8388608 bytes \
         7340032 are reserved and 7340032 in use, the largest free range has 0; held by \
         \"weights\": 3145728 bytes in 1 ranges, \"arena\": 2097152 bytes in 2 ranges, \
         \"cache\": 2097152 bytes in 2 ranges"
    );
    s.free(kept).unwrap();
    s.allocate(2 * MIB, "scratch").unwrap();
}

#[test]
fn idle_segments_make_room_for_a_larger_one() {
    let limits = SegmentLimits { idle_bytes_max: usize::MAX, ..small_limits() };
    let mut s = segments(limits);
    let ids: Vec<_> = (0..8).map(|_| s.allocate(MIB, "a").unwrap()).collect();
    for &id in &ids[..5] {
        s.free(id).unwrap();
    }
    assert_eq!(s.stats().reserved_bytes, 8 * MIB);
    s.allocate(4 * MIB, "b").unwrap();
    assert_eq!(s.stats().reserved_bytes, 7 * MIB);
    s.check();
}

/// The budget is larger than the device: smaller segments are tried, then the refusal is passed on.
#[test]
fn a_device_with_less_than_the_budget_gives_what_it_has() {
    let limits = SegmentLimits { segment_bytes: 4 * MIB, ..small_limits() };
    let mut s = Segments::new(limits, SimulatedDevice::new(5 * MIB, 4 * MIB)).unwrap();
    s.allocate(3 * MIB, "a").unwrap();
    s.allocate(MIB, "a").unwrap();
    s.allocate(600 * KIB, "a").unwrap();
    assert_eq!(s.stats().reserved_bytes, 5 * MIB);
    let error = s.allocate(MIB, "a").unwrap_err();
    let Error::Shortage { refusal, .. } = error else { panic!("{error}") };
    assert_eq!(refusal.as_deref(), Some(&Error::OutOfMemory { bytes: MIB }));
    s.check();
}

#[test]
fn what_is_not_taken_cannot_be_given_back() {
    let (mut a, mut b) = (segments(small_limits()), segments(small_limits()));
    let first = a.allocate(1, "x").unwrap();
    a.free(first).unwrap();
    let second = a.allocate(1, "x").unwrap();
    assert_eq!(a.free(first), Err(Error::NoSuchRange { serial: 0 }));
    assert!(b.free(second).is_err());
    assert!(a.place(second).is_ok());
}
