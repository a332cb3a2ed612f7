//! The specification's examples, and inputs that must be refused.

use crate::ops::{ScatterElements, ScatterNd, ScatterReduction};
use crate::testing::{fails, infers, info, ints, run, t};

#[test]
fn elements_are_written() {
    let x = t(&[1, 5], &[1f32, 2., 3., 4., 5.]);
    let (i, u) = (t(&[1, 3], &[1i64, -2, 1]), t(&[1, 3], &[1.5f32, 2.5, 3.]));
    for (reduction, want) in [
        (ScatterReduction::None, [1f32, 3., 3., 2.5, 5.]),
        (ScatterReduction::Add, [1., 6.5, 3., 6.5, 5.]),
        (ScatterReduction::Mul, [1., 9., 3., 10., 5.]),
        (ScatterReduction::Min, [1., 1.5, 3., 2.5, 5.]),
        (ScatterReduction::Max, [1., 3., 3., 4., 5.]),
    ] {
        let op = ScatterElements { axis: 1, reduction };
        assert_eq!(run(&op, &[&x, &i, &u]), t(&[1, 5], &want), "{op:?}");
    }
    let op = ScatterElements::default();
    let zero = t(&[2, 2], &[false; 4]);
    let out = run(&op, &[&zero, &t(&[1, 2], &[1i32, 0]), &t(&[1, 2], &[true, true])]);
    assert_eq!(out, t(&[2, 2], &[false, true, true, false]));
}

#[test]
fn slices_are_written() {
    let x = t(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let op = ScatterNd::default();
    let out = run(&op, &[&x, &t(&[2, 1], &[2i64, 0]), &t(&[2, 2], &[7i32, 8, 9, 10])]);
    assert_eq!(out, t(&[3, 2], &[9i32, 10, 3, 4, 7, 8]));
    let op = ScatterNd { reduction: ScatterReduction::Add };
    let out = run(&op, &[&x, &t(&[2, 2], &[0i64, 1, 0, -1]), &t(&[2], &[10i32, 100])]);
    assert_eq!(out, t(&[3, 2], &[1i32, 112, 3, 4, 5, 6]));
    let types = [info("f32 n 4"), info("i64 k 1"), info("f32 k 4")];
    assert_eq!(infers(&op, &types), "f32 [n,4]");
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = t(&[2, 2], &[1i32, 2, 3, 4]);
    let op = ScatterElements::default();
    let one = t(&[1, 1], &[2i64]);
    assert!(fails(&op, &[&x, &one, &t(&[1, 1], &[9i32])]).contains("index 2 is outside"));
    assert!(fails(&op, &[&x, &one, &t(&[1], &[9i32])]).contains("rank 1, expected 2"));
    assert!(fails(&op, &[&x, &one, &t(&[1, 1], &[9f32])]).contains("dtype f32, expected i32"));
    let op = ScatterNd::default();
    assert!(fails(&op, &[&x, &ints(&[0, 0, 0]), &t(&[], &[9i32])]).contains("3 wide"));
    assert!(fails(&op, &[&x, &ints(&[0]), &t(&[3], &[9i32; 3])]).contains("is 3, expected 2"));
}
