//! Operators of signals and images: small numbers worked out by hand.

use crate::ops::*;
use crate::testing::{assert_close, fails, ints, run, t};
use lgp_memory::DType;

#[test]
fn windows_and_mel_weights() {
    let window = |kind, periodic| WindowFunction { kind, periodic, dtype: DType::F32 };
    let n = t(&[], &[4i64]);
    let out = run(&window(WindowKind::Hann, true), &[&n]);
    assert_close(&out, &t(&[4], &[0f32, 0.5, 1., 0.5]), 1e-6);
    let out = run(&window(WindowKind::Hann, false), &[&n]);
    assert_close(&out, &t(&[4], &[0f32, 0.75, 0.75, 0.]), 1e-6);
    let out = run(&window(WindowKind::Hamming, true), &[&n]);
    assert_close(&out, &t(&[4], &[4. / 46., 25. / 46., 1f32, 25. / 46.]), 1e-6);
    let out = run(&window(WindowKind::Blackman, true), &[&n]);
    assert_close(&out, &t(&[4], &[0f32, 0.34, 1., 0.34]), 1e-6);
    assert!(fails(&window(WindowKind::Hann, true), &[&t(&[], &[-1i64])]).contains("length is -1"));
    let op = MelWeights { dtype: DType::F32 };
    let whole = [8i64, 16, 8192].map(|n| t(&[], &[n]));
    let edges = [0f32, 4096.].map(|f| t(&[], &[f]));
    let inputs: Vec<_> = whole.iter().chain(&edges).collect();
    let out = run(&op, &inputs);
    assert_eq!(out.shape().dims(), [9, 8]);
    // The first row is the first band's peak, as it and its neighbours begin there.
    assert_close(&t(&[2], &out.as_slice::<f32>().unwrap()[..2]), &t(&[2], &[1f32, 1.]), 0.);
    assert!(
        fails(&op, &[&ints(&[-1]), &whole[1], &whole[2], &edges[0], &edges[1]])
            .contains("no matrix")
    );
}

#[test]
fn grids_follow_the_map() {
    let theta = t(&[1, 2, 3], &[1f32, 0., 0.5, 0., 2., 0.]);
    let size = ints(&[1, 1, 2, 2]);
    let out = run(&AffineGrid { align_corners: true }, &[&theta, &size]);
    let want = [-0.5f32, -2., 1.5, -2., -0.5, 2., 1.5, 2.];
    assert_close(&out, &t(&[1, 2, 2, 2], &want), 1e-6);
    let out = run(&AffineGrid { align_corners: false }, &[&theta, &size]);
    let want = [0f32, -1., 1., -1., 0., 1., 1., 1.];
    assert_close(&out, &t(&[1, 2, 2, 2], &want), 1e-6);
    let op = AffineGrid::default();
    assert!(fails(&op, &[&theta, &ints(&[1, 1, 2])]).contains("3 entries"));
    assert!(fails(&op, &[&theta, &ints(&[1, 1, 2, 2, 2])]).contains("axis 1 is 2, expected 3"));
}

#[test]
fn blocks_add_up() {
    // Blocks of 2 at both places of a line of 3 by 1: the middle is in both.
    let x = t(&[1, 2, 2], &[1f32, 2., 3., 4.]);
    let out = run(&Col2Im::default(), &[&x, &ints(&[3, 1]), &ints(&[2, 1])]);
    assert_close(&out, &t(&[1, 1, 3, 1], &[1f32, 5., 4.]), 0.);
    let op = Col2Im { pads: vec![1, 0, 0, 0], ..Col2Im::default() };
    let out = run(&op, &[&x, &ints(&[2, 1]), &ints(&[2, 1])]);
    assert_close(&out, &t(&[1, 1, 2, 1], &[5f32, 4.]), 0.);
    assert!(fails(&op, &[&x, &ints(&[9, 1]), &ints(&[2, 1])]).contains("2 blocks"));
    assert!(fails(&op, &[&x, &ints(&[1, 1]), &ints(&[3, 1])]).contains("no place"));
}

#[test]
fn centres_and_caches() {
    let x = t(&[1, 4], &[1i32, 2, 3, 4]);
    let op = CenterCropPad { axes: Some(vec![-1]) };
    assert_eq!(run(&op, &[&x, &ints(&[7])]), t(&[1, 7], &[0i32, 1, 2, 3, 4, 0, 0]));
    assert_eq!(run(&op, &[&x, &ints(&[1])]), t(&[1, 1], &[2i32]));
    assert_eq!(run(&CenterCropPad::default(), &[&x, &ints(&[1, 2])]), t(&[1, 2], &[2i32, 3]));
    assert!(fails(&op, &[&x, &ints(&[1, 2])]).contains("2 sizes given, expected 1"));
    let cache = t(&[2, 3, 1], &[1i32, 2, 3, 4, 5, 6]);
    let (new, at) = (t(&[2, 2, 1], &[7i32, 8, 9, 10]), ints(&[1, 2]));
    let op = |circular| TensorScatter { axis: 1, circular };
    let out = run(&op(true), &[&cache, &new, &at]);
    assert_eq!(out, t(&[2, 3, 1], &[1i32, 7, 8, 10, 5, 9]));
    assert!(fails(&op(false), &[&cache, &new, &at]).contains("2 entries at 2 do not fit into 3"));
    let out = run(&op(false), &[&cache, &new]);
    assert_eq!(out, t(&[2, 3, 1], &[7i32, 8, 3, 9, 10, 6]));
}

#[test]
fn random_numbers_have_their_distribution() {
    let draw = |kind| Random { kind, seed: 7, dtype: None, shape: Some(vec![10_000]) };
    let mean = |x: &[f32]| x.iter().sum::<f32>() / 10_000.;
    let normal = run(&draw(RandomKind::Normal { mean: 2., scale: 3. }), &[]);
    let x = normal.as_slice::<f32>().unwrap();
    let variance = mean(&x.iter().map(|x| (x - 2.) * (x - 2.)).collect::<Vec<_>>());
    assert!((mean(x) - 2.).abs() < 0.1 && (variance - 9.).abs() < 0.5, "{} {variance}", mean(x));
    let uniform = run(&draw(RandomKind::Uniform { low: -1., high: 3. }), &[]);
    let x = uniform.as_slice::<f32>().unwrap();
    assert!((mean(x) - 1.).abs() < 0.1 && x.iter().all(|x| (-1. ..3.).contains(x)));
    let p = t(&[10_000], &[0.25f32; 10_000]);
    let op = Random { kind: RandomKind::Bernoulli, seed: 1, dtype: None, shape: None };
    assert!((mean(run(&op, &[&p]).as_slice().unwrap()) - 0.25).abs() < 0.02);
    let weights = t(&[1, 3], &[0f32, f32::NEG_INFINITY, 0.]);
    let op = Multinomial { samples: 1000, seed: 3, dtype: DType::I32 };
    let out = run(&op, &[&weights]);
    let of = |class| out.as_slice::<i32>().unwrap().iter().filter(|&&c| c == class).count();
    assert!(of(1) == 0 && of(0) > 400 && of(2) > 400);
}
