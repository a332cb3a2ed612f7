//! Pooling against nested loops, and bad attributes.

use crate::ops::{GlobalPool, GlobalPoolKind, Pads, Pool, PoolKind};
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use crate::{AxisKind, Op};
use proptest::prelude::*;

const MEAN: PoolKind = PoolKind::Average { count_include_pad: false };

fn pool(kind: PoolKind, kernel: &[usize]) -> Pool {
    Pool {
        kind,
        kernel: kernel.to_vec(),
        strides: Vec::new(),
        pads: Pads::default(),
        dilations: Vec::new(),
        ceil_mode: false,
    }
}

proptest! {
    #[test]
    fn agrees_with_loops(
        size in (1usize..10, 1usize..24), kernel in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4), dilation in (1usize..3, 1usize..3),
        ceil_mode: bool, kind in 0usize..4, padded: bool, seed: u64,
    ) {
        let pad = |k: usize| if padded { k / 2 } else { 0 };
        let p = [pad(kernel.0), pad(kernel.1)];
        let whole = PoolKind::Average { count_include_pad: true };
        let kind = [PoolKind::Max, MEAN, whole, PoolKind::Sum][kind];
        let op = Pool {
            strides: vec![stride.0, stride.1],
            dilations: vec![dilation.0, dilation.1],
            pads: Pads::Explicit(vec![p[0], p[1], p[0], p[1]]),
            ceil_mode,
            ..pool(kind, &[kernel.0, kernel.1])
        };
        let x = noise(&[1, 2, size.0, size.1], seed);
        let beyond = |size: usize, p: usize, kernel: usize, dilation: usize| {
            ((kernel - 1) * dilation + 1).saturating_sub(size + 2 * p)
        };
        let most = if ceil_mode { (stride.0, stride.1) } else { (1, 1) };
        if beyond(size.0, p[0], kernel.0, dilation.0) >= most.0
            || beyond(size.1, p[1], kernel.1, dilation.1) >= most.1
        {
            prop_assert!(fails(&op, &[&x]).contains("does not fit"));
            return Ok(());
        }
        let out = run(&op, &[&x]);
        let (oh, ow) = (out.shape()[2], out.shape()[3]);
        let data = x.as_slice::<f32>().unwrap();
        let mut want = Vec::new();
        for c in 0..2 {
            for oy in 0..oh {
                for ox in 0..ow {
                    let (mut inside, mut counted) = (Vec::new(), 0);
                    for ky in 0..kernel.0 {
                        for kx in 0..kernel.1 {
                            let y = oy * stride.0 + ky * dilation.0;
                            let x = ox * stride.1 + kx * dilation.1;
                            counted += usize::from(y < size.0 + 2 * p[0] && x < size.1 + 2 * p[1]);
                            let (y, x) = (y.wrapping_sub(p[0]), x.wrapping_sub(p[1]));
                            if y < size.0 && x < size.1 {
                                inside.push(data[(c * size.0 + y) * size.1 + x]);
                            }
                        }
                    }
                    let sum: f32 = inside.iter().sum();
                    want.push(match kind {
                        PoolKind::Max => inside.into_iter().fold(f32::NEG_INFINITY, f32::max),
                        PoolKind::Average { count_include_pad: true } => sum / counted as f32,
                        PoolKind::Sum => sum,
                        PoolKind::Average { .. } => sum / inside.len().max(1) as f32,
                    });
                }
            }
        }
        assert_close(&out, &t(out.shape(), &want), 1e-6);
    }
}

#[test]
fn whole_planes() {
    let x = t(&[1, 2, 1, 3], &[1f32, 2., 6., -1., -2., -6.]);
    for (kind, out) in [(GlobalPoolKind::Average, [3f32, -3.]), (GlobalPoolKind::Max, [6., -1.])] {
        assert_close(&run(&GlobalPool { kind }, &[&x]), &t(&[1, 2, 1, 1], &out), 1e-6);
    }
    let flat = GlobalPool { kind: GlobalPoolKind::Max };
    assert!(fails(&flat, &[&noise(&[1, 2], 0)]).contains("expected 3 or more"));
    assert_eq!(infers(&flat, &[info("f32 n 2 h w")]), "f32 [n,2,1,1]");
}

#[test]
fn integers_and_nan() {
    let op = pool(PoolKind::Max, &[2]);
    assert_close(&run(&op, &[&t(&[1, 1, 3], &[-5i8, -7, -9])]), &t(&[1, 1, 2], &[-5i8, -7]), 0.);
    assert_close(&run(&op, &[&t(&[1, 1, 3], &[5u8, 7, 9])]), &t(&[1, 1, 2], &[7u8, 9]), 0.);
    let out = run(&op, &[&t(&[1, 1, 3], &[f32::NAN, 1., 2.])]);
    assert_close(&out, &t(&[1, 1, 2], &[f32::NAN, 2.]), 0.);
}

#[test]
fn bad_attributes_are_errors() {
    let x = noise(&[1, 1, 4, 4], 0);
    for (op, message) in [
        (pool(PoolKind::Max, &[2]), "MaxPool: kernel [2] does not fit an input of rank 4"),
        (pool(MEAN, &[0, 1]), "AveragePool: kernel is [0, 1], expected no 0"),
        (pool(MEAN, &[5, 5]), "AveragePool: a window of 5 does not fit an input of 4 with padding"),
        (
            Pool { pads: Pads::Explicit(vec![3; 4]), ..pool(PoolKind::Max, &[2, 2]) },
            "MaxPool: padding 3 and 3 is not smaller than the window of 2",
        ),
        (
            Pool { pads: Pads::Explicit(vec![1]), ..pool(PoolKind::Max, &[2, 2]) },
            "MaxPool: pads has 1 entries, expected 4",
        ),
    ] {
        assert_eq!(fails(&op, &[&x]), message);
    }
}

/// Few of a window's 2^40 taps see the input.
#[test]
fn taps_in_the_padding_cost_nothing() {
    let reach = 1usize << 40;
    let x = t(&[1, 1, 2], &[3f32, 5.]);
    for (stride, pads, want) in [
        (1, vec![reach - 2, 0], &[5f32][..]),
        (1, vec![reach - 1, 0], &[3., 5.]),
        (reach / 2, vec![reach - 1, reach - 1], &[3., 5., 5.]),
    ] {
        let op = Pool {
            kind: PoolKind::Max,
            kernel: vec![reach],
            strides: vec![stride],
            pads: Pads::Explicit(pads),
            dilations: vec![],
            ceil_mode: false,
        };
        assert_eq!(run(&op, &[&x]), t(&[1, 1, want.len()], want));
    }
}

/// The expected values are ONNX Runtime's for a window larger than the input.
#[test]
fn a_window_may_reach_beyond_the_input_in_ceil_mode() {
    let x = t(&[1, 1, 2, 2], &[0f32, 1., 2., 3.]);
    let whole = PoolKind::Average { count_include_pad: true };
    for (kind, out) in [(PoolKind::Max, 3f32), (MEAN, 1.5), (whole, 1.5)] {
        let op = Pool { strides: vec![2, 2], ceil_mode: true, ..pool(kind, &[3, 3]) };
        assert_close(&run(&op, &[&x]), &t(&[1, 1, 1, 1], &[out]), 1e-6);
    }
}

#[test]
fn windows_are_named_where_their_places_are_known() {
    let explicit = Pads::Explicit(vec![2, 1, 0, 0]);
    for (pads, dims, want) in [
        (explicit, "f32 n c h w", vec![Some((2, 5)), Some((1, 2))]),
        (Pads::default(), "f32 n c h w", vec![Some((0, 5)), Some((0, 2))]),
        (Pads::SameLower, "f32 n c h 6", vec![None, Some((0, 2))]),
        (Pads::SameLower, "f32 n c 6 7", vec![Some((2, 5)), Some((1, 2))]),
    ] {
        let (strides, dilations) = (vec![2, 3], vec![2, 1]);
        let op = Pool { strides, dilations, pads, ..pool(PoolKind::Max, &[3, 2]) };
        let axes = op.axes(&[Some(&info(dims))], &[]);
        let kind = |at| axes.of_output(0, at).map(|axis| axis.kind);
        assert_eq!([kind(0), kind(1)], [Some(AxisKind::Each); 2]);
        for (i, (want, stride)) in want.into_iter().zip([2, 3]).enumerate() {
            let window = |(before, extent)| AxisKind::Window { stride, before, extent };
            assert_eq!(kind(2 + i), want.map(window), "{op:?} {dims}");
        }
    }
}
