//! Convolutions against nested loops, transposed ones against their definition, and bad
//! attributes.

use crate::ops::{Conv, ConvTranspose, Pads};
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use lgp_memory::{DType, Tensor};
use proptest::prelude::*;

/// A convolution of two spatial axes by loops over the outputs.
fn naive(op: &Conv, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, out: &[usize]) -> Tensor {
    let Pads::Explicit(pads) = &op.pads else { panic!("explicit pads only") };
    let (xs, ws) = (x.shape().to_vec(), w.shape().to_vec());
    let (xd, wd) = (x.as_slice::<f32>().unwrap(), w.as_slice::<f32>().unwrap());
    let mut data = Vec::new();
    let (c, maps) = (ws[1], ws[0] / op.group);
    for n in 0..out[0] {
        for m in 0..out[1] {
            for oy in 0..out[2] {
                for ox in 0..out[3] {
                    let mut sum = bias.map_or(0., |b| f64::from(b.as_slice::<f32>().unwrap()[m]));
                    for ci in 0..c {
                        for ky in 0..ws[2] {
                            for kx in 0..ws[3] {
                                let y = (oy * op.strides[0] + ky * op.dilations[0])
                                    .checked_sub(pads[0])
                                    .filter(|y| *y < xs[2]);
                                let x = (ox * op.strides[1] + kx * op.dilations[1])
                                    .checked_sub(pads[1])
                                    .filter(|x| *x < xs[3]);
                                let (Some(y), Some(x)) = (y, x) else { continue };
                                let channel = m / maps * c + ci;
                                let a = xd[((n * xs[1] + channel) * xs[2] + y) * xs[3] + x];
                                let b = wd[((m * c + ci) * ws[2] + ky) * ws[3] + kx];
                                sum += f64::from(a) * f64::from(b);
                            }
                        }
                    }
                    data.push(sum as f32);
                }
            }
        }
    }
    t(out, &data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every path: pointwise, unfolded, grouped and depthwise.
    #[test]
    fn agrees_with_loops(
        n in 1usize..3, group in 1usize..4, c in 1usize..4, m in 1usize..4,
        size in (1usize..12, 1usize..20), kernel in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4), dilation in (1usize..3, 1usize..3),
        pads in (0usize..3, 0usize..3, 0usize..3, 0usize..3), bias: bool, depthwise: bool,
        seed: u64,
    ) {
        let (c, m, group) = if depthwise { (1, 1, group + 1) } else { (c, m, group) };
        let x = noise(&[n, c * group, size.0, size.1], seed);
        let w = noise(&[m * group, c, kernel.0, kernel.1], seed ^ 1);
        let b = noise(&[m * group], seed ^ 2);
        let op = Conv {
            strides: vec![stride.0, stride.1],
            pads: Pads::Explicit(vec![pads.0, pads.1, pads.2, pads.3]),
            dilations: vec![dilation.0, dilation.1],
            group,
        };
        let side = |size: usize, k: usize, s, d, p: usize| {
            Some((size + p).checked_sub((k - 1) * d + 1)? / s + 1)
        };
        let oy = side(size.0, kernel.0, stride.0, dilation.0, pads.0 + pads.2);
        let ox = side(size.1, kernel.1, stride.1, dilation.1, pads.1 + pads.3);
        let (Some(oy), Some(ox)) = (oy, ox) else {
            prop_assert!(fails(&op, &[&x, &w]).contains("does not fit"));
            return Ok(());
        };
        let inputs = if bias { vec![&x, &w, &b] } else { vec![&x, &w] };
        let want = naive(&op, &x, &w, bias.then_some(&b), &[n, m * group, oy, ox]);
        assert_close(&run(&op, &inputs), &want, 1e-5);
    }

    /// A transposed convolution is the gradient of the convolution: the two are adjoint,
    /// `<conv(x), y> = <x, transposed(y)>`.
    #[test]
    fn transposed_is_adjoint(
        group in 1usize..3, c in 1usize..3, m in 1usize..3, size in (4usize..9, 4usize..9),
        kernel in (1usize..4, 1usize..4), stride in (1usize..4, 1usize..3),
        pads in (0usize..2, 0usize..2), seed: u64,
    ) {
        let pads = Pads::Explicit(vec![pads.0, pads.1, 0, pads.0]);
        let x = noise(&[1, c * group, size.0, size.1], seed);
        let w = noise(&[m * group, c, kernel.0, kernel.1], seed ^ 1);
        let conv = Conv { strides: vec![stride.0, stride.1], pads: pads.clone(), group, ..Conv::default() };
        let forward = run(&conv, &[&x, &w]);
        let y = noise(forward.shape(), seed ^ 3);
        let Pads::Explicit(p) = &pads else { unreachable!() };
        let skipped = |axis: usize| {
            let (y, k, i) = (forward.shape()[axis], w.shape()[axis], axis - 2);
            x.shape()[axis] + p[i] + p[i + 2] - (y - 1) * conv.strides[i] - k
        };
        let transposed = ConvTranspose {
            strides: conv.strides.clone(), pads: pads.clone(), group, output_shape: None,
            // The input that the stride skipped at the end.
            output_padding: vec![skipped(2), skipped(3)], dilations: Vec::new(),
        };
        let back = run(&transposed, &[&y, &w]);
        let at = |t: &Tensor, i: [usize; 3]| {
            let s = t.shape();
            let inside = i[1] < s[2] && i[2] < s[3];
            let at = (i[0] * s[2] + i[1]) * s[3] + i[2];
            if inside { f64::from(t.as_slice::<f32>().unwrap()[at]) } else { 0. }
        };
        let dot = |a: &Tensor, b: &Tensor| {
            let mut sum = 0.;
            for ch in 0..a.shape()[1] {
                for i in 0..a.shape()[2] {
                    for j in 0..a.shape()[3] {
                        sum += at(a, [ch, i, j]) * at(b, [ch, i, j]);
                    }
                }
            }
            sum
        };
        prop_assert!((dot(&forward, &y) - dot(&x, &back)).abs() < 1e-4);
    }
}

#[test]
fn one_and_three_axes() {
    let conv = Conv { pads: Pads::Explicit(vec![1, 1]), ..Conv::default() };
    let out = run(&conv, &[&t(&[1, 1, 4], &[1f32, 2., 3., 4.]), &t(&[1, 1, 3], &[1f32, 0., -1.])]);
    assert_close(&out, &t(&[1, 1, 4], &[-2f32, -2., -2., 3.]), 0.);
    let cube = t(&[1, 1, 2, 2, 2], &[1f32, 2., 3., 4., 5., 6., 7., 8.]);
    let out = run(&Conv::default(), &[&cube, &t(&[1, 1, 2, 1, 2], &[1f32; 4])]);
    assert_close(&out, &t(&[1, 1, 1, 2, 1], &[14f32, 22.]), 0.);
    let four = noise(&[1, 1, 2, 2, 2, 2], 0);
    let kernel = noise(&[1, 1, 1, 1, 1, 1], 0);
    assert_eq!(
        fails(&Conv::default(), &[&four, &kernel]),
        "Conv is not supported for 4 spatial axes"
    );
}

#[test]
fn same_padding() {
    let x = t(&[1, 1, 4], &[1f32, 2., 3., 4.]);
    let w = t(&[1, 1, 2], &[1f32, 10.]);
    for (pads, out) in
        [(Pads::SameUpper, [21f32, 32., 43., 4.]), (Pads::SameLower, [10f32, 21., 32., 43.])]
    {
        let conv = Conv { pads, ..Conv::default() };
        assert_close(&run(&conv, &[&x, &w]), &t(&[1, 1, 4], &out), 0.);
    }
}

#[test]
fn other_dtypes() {
    let (x, w) = (t(&[1, 1, 3], &[1f64, 2., 3.]), t(&[1, 1, 2], &[1f64, 1.]));
    assert_close(&run(&Conv::default(), &[&x, &w]), &t(&[1, 1, 2], &[3f64, 5.]), 0.);
    let half = |v: &[f32]| v.iter().map(|x| half::f16::from_f32(*x)).collect::<Vec<_>>();
    let (x, w) = (t(&[1, 1, 3], &half(&[1., 2., 3.])), t(&[1, 1, 2], &half(&[1., 1.])));
    assert_close(&run(&Conv::default(), &[&x, &w]), &t(&[1, 1, 2], &half(&[3., 5.])), 0.);
    let (x, w) = (Tensor::zeros(DType::I32, [1, 1, 3]), Tensor::zeros(DType::I32, [1, 1, 2]));
    let message = fails(&Conv::default(), &[&x.unwrap(), &w.unwrap()]);
    assert_eq!(message, "Conv: dtype is i32, expected a floating-point one");
}

#[test]
fn empty_inputs() {
    let w = noise(&[2, 1, 1, 1], 0);
    for (x, dims) in [([0, 1, 4, 4], [0, 2, 4, 4]), ([1, 1, 0, 4], [1, 2, 0, 4])] {
        let conv = Conv { pads: Pads::SameUpper, ..Conv::default() };
        assert_eq!(run(&conv, &[&noise(&x, 0), &w]).shape().dims(), dims);
    }
    // No input channels: only the bias is left.
    let out = run(
        &Conv::default(),
        &[&noise(&[1, 0, 2, 2], 0), &noise(&[1, 0, 1, 1], 0), &t(&[1], &[7f32])],
    );
    assert_close(&out, &t(&[1, 1, 2, 2], &[7f32; 4]), 0.);
}

#[test]
fn bad_attributes_are_errors() {
    let (x, w) = (noise(&[1, 4, 5, 5], 0), noise(&[4, 4, 3, 3], 0));
    let huge = usize::MAX;
    let d = Conv::default;
    for (conv, message) in [
        (Conv { group: 0, ..d() }, "Conv: group 0 does not divide 4 output channels"),
        (Conv { group: 3, ..d() }, "Conv: group 3 does not divide 4 output channels"),
        (Conv { group: 2, ..d() }, "Conv: the input has 4 channels, expected 8: 2 groups of 4"),
        (Conv { strides: vec![0, 1], ..d() }, "Conv: strides is [0, 1], expected no 0"),
        (Conv { dilations: vec![1], ..d() }, "Conv: dilations has 1 entries, expected 2"),
        (
            Conv { dilations: vec![3, 3], ..d() },
            "Conv: a window of 7 does not fit an input of 5 with padding",
        ),
        (
            Conv { pads: Pads::Explicit(vec![huge, 0, 0, 0]), ..d() },
            "Conv: a window with its padding overflows",
        ),
        (Conv { dilations: vec![huge, huge], ..d() }, "Conv: a window with its padding overflows"),
    ] {
        assert_eq!(fails(&conv, &[&x, &w]), message);
    }
    let far = Conv { pads: Pads::Explicit(vec![1 << 61, 0, 1 << 61, 0]), ..d() };
    assert!(fails(&far, &[&x, &w]).contains("more elements than can be addressed"));
    for (inputs, message) in [
        (vec![&x], "Conv: 1 inputs given, expected 2 to 3"),
        (vec![&x, &w, &x], "Conv: bias has rank 4, shape [1,4,5,5], expected rank 1"),
    ] {
        assert_eq!(fails(&d(), &inputs), message);
    }
    let flat = noise(&[4, 4], 0);
    assert!(fails(&d(), &[&flat, &w]).contains("expected equal ranks from 3 on"));
    assert!(fails(&d(), &[&x, &noise(&[4, 4, 3], 0)]).contains("expected equal ranks"));
}

#[test]
fn a_far_dilation_takes_little_memory() {
    // One output, whose three taps are a gigabyte of padding apart.
    let far = 1 << 40;
    let conv = Conv {
        pads: Pads::Explicit(vec![far, far]),
        dilations: vec![far],
        group: 2,
        ..Conv::default()
    };
    let out =
        run(&conv, &[&t(&[1, 2, 1], &[2f32, 3.]), &t(&[2, 1, 3], &[9f32, 5., 9., 9., 7., 9.])]);
    assert_close(&out, &t(&[1, 2, 1], &[10f32, 21.]), 0.);
}

#[test]
fn infers_symbols() {
    let same = Conv { pads: Pads::Explicit(vec![1; 4]), ..Conv::default() };
    let half = Conv { strides: vec![2, 2], ..same.clone() };
    for (op, x, out) in [
        (&same, "f32 n 3 h w", "f32 [n,8,h,w]"),
        (&half, "f32 n 3 224 w", "f32 [n,8,112,?]"),
        (&half, "f32 n ? 224 224", "f32 [n,8,112,112]"),
        (&half, "f32 n 4 224 224", "Conv: the input has 4 channels, expected 3: 1 groups of 3"),
    ] {
        assert_eq!(infers(op, &[info(x), info("f32 8 3 3 3")]), out);
    }
}

#[test]
fn transposed_sizes() {
    let (x, w) = (noise(&[1, 2, 5, 5], 0), noise(&[2, 3, 4, 4], 0));
    let two = ConvTranspose { strides: vec![2, 2], ..ConvTranspose::default() };
    for (op, side) in [
        (two.clone(), 12),
        (ConvTranspose { pads: Pads::Explicit(vec![1; 4]), ..two.clone() }, 10),
        (ConvTranspose { output_padding: vec![1, 1], ..two.clone() }, 13),
        (ConvTranspose { pads: Pads::SameUpper, ..two.clone() }, 10),
        (ConvTranspose { output_shape: Some(vec![11, 11]), ..two.clone() }, 11),
    ] {
        assert_eq!(run(&op, &[&x, &w]).shape().dims(), [1, 3, side, side], "{op:?}");
    }
    let cut = ConvTranspose { pads: Pads::Explicit(vec![9; 4]), ..two };
    assert!(fails(&cut, &[&x, &w]).contains("no valid output size"));
}
