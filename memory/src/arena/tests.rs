//! Tests of planning and of the arena.

use super::*;
use crate::buffer::ALIGNMENT;
use proptest::prelude::*;

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The outputs of MobileNetV2's nodes at 224×224, batch 1, f32. A convolution with its
/// normalisation and clipping counts as one node.
fn mobilenet_v2() -> Vec<Lifetime> {
    const STAGES: [(usize, usize, usize, usize); 7] = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    let mut all: Vec<Lifetime> = Vec::new();
    let mut node = |channels: usize, side: usize, inputs: &[usize]| {
        let step = all.len();
        inputs.iter().for_each(|&i| all[i].last = step);
        all.push(Lifetime { bytes: channels * side * side * 4, first: step, last: step });
        step
    };
    let (mut x, mut channels, mut side) = (node(32, 112, &[]), 32, 112);
    for (expansion, maps, repeats, stride) in STAGES {
        for repeat in 0..repeats {
            let stride = if repeat == 0 { stride } else { 1 };
            let mut y = x;
            if expansion > 1 {
                y = node(channels * expansion, side, &[y]);
            }
            side /= stride;
            y = node(channels * expansion, side, &[y]);
            y = node(maps, side, &[y]);
            if stride == 1 && channels == maps {
                y = node(maps, side, &[x, y]);
            }
            (x, channels) = (y, maps);
        }
    }
    x = node(1280, 7, &[x]);
    x = node(1280, 1, &[x]);
    x = node(1280, 1, &[x]);
    node(1000, 1, &[x]);
    all
}

#[test]
fn mobilenet_v2_reaches_its_lower_bound() {
    let tensors = mobilenet_v2();
    let bytes = |order| ArenaPlan::new(&tensors, order).expect("it is small").bytes;
    assert_eq!(tensors.len(), 65);
    assert!((mib(ArenaPlan::naive(&tensors)) - 26.3135).abs() < 1e-3);
    assert!((mib(ArenaPlan::lower_bound(&tensors)) - 5.742).abs() < 1e-3);
    assert_eq!(bytes(Order::BySize), ArenaPlan::lower_bound(&tensors));
    assert!((mib(bytes(Order::Given)) - 6.508).abs() < 1e-3, "{}", mib(bytes(Order::Given)));
}

#[test]
fn the_peak_is_where_the_most_bytes_live() {
    let life = |bytes, first, last| Lifetime { bytes, first, last };
    let tensors = [life(64, 0, 1), life(65, 1, 2), life(64, 2, 5), life(0, 2, 2)];
    assert_eq!(ArenaPlan::peak(&tensors), (1, 192));
    assert_eq!(ArenaPlan::peak(&[]), (0, 0));
    assert_eq!(ArenaPlan::naive(&tensors), 256);
}

#[test]
fn sizes_that_overflow_have_no_plan() {
    let huge = Lifetime { bytes: usize::MAX, first: 0, last: 0 };
    let half = Lifetime { bytes: usize::MAX / 2, ..huge };
    for tensors in [vec![huge], vec![half, half]] {
        assert_eq!(ArenaPlan::new(&tensors, Order::BySize), None);
    }
    assert_eq!(ArenaPlan::new(&[], Order::Given).map(|plan| plan.bytes), Some(0));
}

#[test]
fn ranges_are_refused_when_they_overlap_or_lie_outside() {
    let arena = Arena::new(&Pool::new(), 1024).unwrap();
    let middle = arena.take(256, 200).unwrap();
    for (offset, len, free) in [
        (0, 256, true),
        (0, 257, false),
        (192, 128, false),
        (256, 1, false),
        (320, 64, false),
        (448, 64, false),
        (512, 512, true),
        (960, 65, false),
        (1024, 1, false),
        (10, 10, false),
        (0, 0, false),
        (usize::MAX - 63, 128, false),
    ] {
        let taken = arena.take(offset, len);
        assert_eq!(taken.is_some(), free, "{offset} {len}");
    }
    drop(middle);
    assert_eq!(arena.take(192, 300).map(|buffer| buffer.len()), Some(300));
}

#[test]
fn the_block_outlives_its_arena_while_a_range_is_alive() {
    let pool = Pool::new();
    let arena = Arena::new(&pool, 1000).unwrap();
    let mut buffer = arena.take(64, 64).unwrap();
    drop(arena);
    buffer.fill(7);
    assert!(pool.stats().in_use_bytes >= 1000);
    assert_eq!(&buffer[..], [7; 64]);
    drop(buffer);
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn threads_never_share_a_byte() {
    let arena = Arena::new(&Pool::new(), 4096).unwrap();
    std::thread::scope(|scope| {
        for mark in 0..4u8 {
            let arena = arena.clone();
            scope.spawn(move || {
                for i in 0..2000usize {
                    let at = (i * 7 + usize::from(mark) * 13) % 60 * 64;
                    let Some(mut buffer) = arena.take(at, 256) else { continue };
                    buffer.fill(mark);
                    std::hint::spin_loop();
                    assert!(buffer.iter().all(|&b| b == mark));
                }
            });
        }
    });
}

proptest! {
    /// Tensors that live at once never overlap, and no plan is below the lower bound.
    #[test]
    fn plans_are_sound(
        lives in prop::collection::vec((0usize..5000, 0usize..40, 0usize..12), 0..80)
    ) {
        let tensors: Vec<Lifetime> = lives
            .into_iter()
            .map(|(bytes, first, steps)| Lifetime { bytes, first, last: first + steps })
            .collect();
        let bound = ArenaPlan::lower_bound(&tensors);
        for order in [Order::BySize, Order::Given] {
            let plan = ArenaPlan::new(&tensors, order).expect("it is small");
            prop_assert!(bound <= plan.bytes && plan.bytes <= ArenaPlan::naive(&tensors));
            for (i, a) in tensors.iter().enumerate() {
                prop_assert!(plan.offsets[i].is_multiple_of(ALIGNMENT));
                prop_assert!(plan.offsets[i] + a.bytes <= plan.bytes);
                for (j, b) in tensors.iter().enumerate().skip(i + 1) {
                    let at_once = a.first <= b.last && b.first <= a.last;
                    let (x, y) = (plan.offsets[i], plan.offsets[j]);
                    let apart = x + a.bytes <= y || y + b.bytes <= x;
                    prop_assert!(!at_once || apart, "{a:?} at {x}, {b:?} at {y}");
                }
            }
        }
    }

    /// The same over several blocks, none of which exceeds the limit.
    #[test]
    fn plans_in_blocks_are_sound(
        lives in prop::collection::vec((0usize..5000, 0usize..40, 0usize..12), 0..60),
        most in 1000usize..20_000,
    ) {
        let tensors: Vec<Lifetime> = lives
            .into_iter()
            .map(|(bytes, first, steps)| Lifetime { bytes, first, last: first + steps })
            .collect();
        let largest = tensors.iter().map(|t| t.bytes.next_multiple_of(ALIGNMENT)).max();
        let plan = ArenaPlan::in_blocks(&tensors, most);
        prop_assert_eq!(plan.is_some(), largest.unwrap_or(0) <= most);
        let Some(BlockPlan { places, blocks }) = plan else { return Ok(()) };
        prop_assert!(blocks.iter().all(|&bytes| 0 < bytes && bytes <= most));
        for (i, a) in tensors.iter().enumerate().filter(|(_, a)| a.bytes > 0) {
            prop_assert!(places[i].1 + a.bytes <= blocks[places[i].0]);
            for (j, b) in tensors.iter().enumerate().skip(i + 1).filter(|(_, b)| b.bytes > 0) {
                let at_once = a.first <= b.last && b.first <= a.last;
                let ((p, x), (q, y)) = (places[i], places[j]);
                let apart = p != q || x + a.bytes <= y || y + b.bytes <= x;
                prop_assert!(!at_once || apart, "{a:?} at {p} {x}, {b:?} at {q} {y}");
            }
        }
    }
}
