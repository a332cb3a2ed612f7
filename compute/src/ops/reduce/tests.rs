//! Reductions, positions of extremes.

use crate::ops::{ArgKind, ArgReduce, Reduce, ReduceKind as K};
use crate::testing::{assert_close, fails, infers, info, ints, noise, run, t};
use lgp_memory::Tensor;

#[test]
fn values() {
    let x = [1f32, -2., 3., 4., 5., -6.];
    let log = |a: f32, b: f32, c: f32| (a.exp() + b.exp() + c.exp()).ln();
    for (kind, want) in [
        (K::Mean, [2. / 3., 1.]),
        (K::Sum, [2., 3.]),
        (K::Max, [3., 5.]),
        (K::Min, [-2., -6.]),
        (K::Prod, [-6., -120.]),
        (K::L1, [6., 15.]),
        (K::L2, [14f32.sqrt(), 77f32.sqrt()]),
        (K::SumSquare, [14., 77.]),
        (K::LogSumExp, [log(1., -2., 3.), log(4., 5., -6.)]),
    ] {
        let op = Reduce::new(kind, Some(vec![-1]));
        assert_close(&run(&op, &[&t(&[2, 3], &x)]), &t(&[2, 1], &want), 1e-6);
        let (x, want) = (x.map(f64::from), want.map(f64::from));
        assert_close(&run(&op, &[&t(&[2, 3], &x)]), &t(&[2, 1], &want), 1e-6);
        if !matches!(kind, K::L2 | K::LogSumExp | K::Mean) {
            let (x, want) = (x.map(|x| x as i32), want.map(|x| x as i32));
            assert_close(&run(&op, &[&t(&[2, 3], &x)]), &t(&[2, 1], &want), 0.);
        }
    }
}

#[test]
fn axes() {
    let x = noise(&[2, 3, 4], 0);
    let sum = |axes: Option<Vec<i64>>, keep_dims| Reduce { keep_dims, ..Reduce::new(K::Sum, axes) };
    for (axes, keep, dims) in [
        (None, true, vec![1, 1, 1]),
        (None, false, vec![]),
        (Some(vec![0]), false, vec![3, 4]),
        (Some(vec![-1, 0]), true, vec![1, 3, 1]),
    ] {
        assert_eq!(run(&sum(axes, keep), &[&x]).shape().dims(), dims);
    }
    // Reducing axes one after the other, in any order, gives the same as reducing all together.
    let both = run(&sum(Some(vec![2, 0]), false), &[&x]);
    let first = run(&sum(Some(vec![0]), false), &[&x]);
    assert_close(&run(&sum(Some(vec![1]), false), &[&first]), &both, 1e-6);
    assert_close(&run(&sum(None, false), &[&x, &ints(&[0, 2])]), &both, 1e-6);
    let noop = Reduce { noop_with_empty_axes: true, ..sum(None, true) };
    assert_close(&run(&noop, &[&x, &ints(&[])]), &x, 0.);
    assert!(fails(&sum(Some(vec![3]), true), &[&x]).contains("axis 3 is outside"));
    assert!(fails(&sum(Some(vec![1, -2]), true), &[&x]).contains("named twice"));
    assert_eq!(infers(&sum(Some(vec![1]), true), &[info("f32 n 3 h")]), "f32 [n,1,h]");
}

#[test]
fn nothing_to_reduce() {
    let none = Tensor::zeros(lgp_memory::DType::F32, [2, 0]).unwrap();
    let op = |kind| Reduce { keep_dims: false, ..Reduce::new(kind, Some(vec![1])) };
    assert_close(&run(&op(K::Sum), &[&none]), &t(&[2], &[0f32, 0.]), 0.);
    assert_close(&run(&op(K::Prod), &[&none]), &t(&[2], &[1f32, 1.]), 0.);
    assert_close(&run(&op(K::Max), &[&none]), &t(&[2], &[f32::NEG_INFINITY; 2]), 0.);
    let bytes = Tensor::zeros(lgp_memory::DType::U8, [2, 0]).unwrap();
    assert_close(&run(&op(K::Min), &[&bytes]), &t(&[2], &[255u8; 2]), 0.);
    let bools = t(&[2, 2], &[true, false, false, false]);
    assert_close(&run(&op(K::Max), &[&bools]), &t(&[2], &[true, false]), 0.);
}

#[test]
fn extremes() {
    let x = t(&[2, 4], &[1f32, 3., 3., 0., 5., 1., 1., 5.]);
    let arg = |kind, axis, select_last_index| ArgReduce {
        kind,
        axis,
        keep_dims: false,
        select_last_index,
    };
    for (op, want) in [
        (arg(ArgKind::Max, 1, false), vec![1i64, 0]),
        (arg(ArgKind::Max, -1, true), vec![2, 3]),
        (arg(ArgKind::Min, 1, false), vec![3, 1]),
        (arg(ArgKind::Max, 0, false), vec![1, 0, 0, 1]),
    ] {
        assert_eq!(run(&op, &[&x]), ints(&want), "{op:?}");
    }
    let nan = t(&[3], &[1f32, f32::NAN, 2.]);
    assert_eq!(run(&arg(ArgKind::Max, 0, false), &[&nan]), t(&[], &[1i64]));
    assert!(fails(&arg(ArgKind::Max, 0, false), &[&t(&[0], &[0f32; 0])]).contains("no elements"));
}

/// As in ONNX's reference: calculated in floats, and then truncated.
#[test]
fn roots_and_logarithms_of_integers() {
    let x = t(&[2, 3], &[3i64, 4, 0, 5, 5, 5]);
    let op = |kind| Reduce { keep_dims: false, ..Reduce::new(kind, Some(vec![1])) };
    assert_eq!(run(&op(K::L2), &[&x]), t(&[2], &[5i64, 8]));
    assert_eq!(run(&op(K::LogSumExp), &[&x]), t(&[2], &[4i64, 6]));
    let x = t(&[1, 2], &[-3i32, 3]);
    assert_eq!(run(&op(K::L2), &[&x]), t(&[1], &[4i32]));
}
