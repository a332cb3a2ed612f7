//! Layouts without a device: tensors that live at once have places of their own, and more room
//! never moves more bytes.

use super::*;

const ALIGNMENT: usize = 512;

fn limits(bytes: usize) -> SegmentLimits {
    SegmentLimits { alignment_bytes: ALIGNMENT, ..SegmentLimits::new(bytes, 1 << 30) }
}

/// A chain of layers with weights of several sizes; the last layer reads the first one's weights
/// again.
fn needs(layers: usize) -> Needs {
    let tensor = |step: usize| {
        let bytes = 10_000 * (1 + step % 3);
        let life = Lifetime { bytes, first: step, last: (step + 1 + step % 2).min(layers) };
        (Spot::Value(ValueId(step)), life)
    };
    let weight = |step: usize| Weight {
        value: ValueId(1000 + step),
        bytes: [200_000, 90_000, 3000][step % 3],
        steps: if step == 0 { vec![0, layers - 1] } else { vec![step] },
        renamed: step == 4,
    };
    let tensors = (0..layers).map(tensor).collect();
    let weights = (0..layers).map(weight).collect();
    Needs { tensors, weights, ..Needs::default() }
}

#[test]
fn more_room_moves_less_and_nothing_overlaps() {
    let needs = needs(24);
    let all: usize = needs.weights.iter().map(|weight| weight.bytes).sum();
    let small = Layout::smallest(&needs, limits(1 << 20), 1 << 30);
    let least = small.smallest_bytes;
    assert!(least < all / 3, "{least} of {all}");
    let mut moved = usize::MAX;
    for limit in (least..2 * all).step_by(32 * ALIGNMENT) {
        let layout = Layout::new(&needs, limits(limit), 1 << 30).expect("it fits");
        assert!(layout.streamed_bytes() <= moved.saturating_add(200_000), "{limit}");
        moved = moved.min(layout.streamed_bytes());
        check(&needs, &layout);
    }
    assert_eq!(moved, 0);
    let small = Layout::new(&needs, limits(least - ALIGNMENT), 1 << 30).expect_err("too small");
    assert_eq!(small.smallest_bytes, least);
    let sum: usize = small.needs.iter().map(|holder| holder.bytes).sum();
    assert!(sum <= least && small.needs.iter().any(|holder| &*holder.owner == "weights"));
}

/// Each weight stays or is present when it is read; tensors that live at once do not overlap.
fn check(needs: &Needs, layout: &Layout) {
    for weight in &needs.weights {
        let comes = |step: &usize| {
            let own = |s: &&Stream| s.value == weight.value && (s.ready..=s.last).contains(step);
            layout.streams.iter().filter(own).count()
        };
        let stays = usize::from(layout.resident.contains(&weight.value));
        assert!(weight.steps.iter().all(|step| comes(step) + stays == 1), "{weight:?}");
        assert!(stays == 1 || !weight.renamed);
    }
    assert!(layout.streams.iter().all(|s| s.issue <= s.ready && s.ready <= s.last));
    assert!(layout.streams.is_sorted_by_key(|stream| stream.issue));
    let tensors = needs.tensors.iter().map(|(spot, life)| (*life, layout.places[spot]));
    let coming = layout
        .streams
        .iter()
        .map(|s| (Lifetime { bytes: s.bytes, first: s.issue, last: s.last }, s.place));
    let all: Vec<(Lifetime, (usize, usize))> = tensors.chain(coming).collect();
    for (i, (a, (p, x))) in all.iter().enumerate() {
        assert!(x.is_multiple_of(ALIGNMENT) && x + a.bytes <= layout.blocks[*p]);
        for (b, (q, y)) in &all[i + 1..] {
            let at_once = a.first <= b.last && b.first <= a.last;
            let apart = p != q || x + a.bytes <= *y || y + b.bytes <= *x;
            assert!(!at_once || apart, "{a:?} at {x}, {b:?} at {y}");
        }
    }
}

#[test]
fn weights_that_come_are_spread_over_the_run() {
    let weight = |step: usize| Weight {
        value: ValueId(step),
        bytes: 1 << 20,
        steps: vec![step],
        renamed: false,
    };
    let order = leaving_order(&(0..8).map(weight).collect::<Vec<_>>());
    assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7].map(ValueId));
}
