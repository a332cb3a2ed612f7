//! Losses worked out by hand.

use super::{NllLoss, Reduction};
use crate::testing::{assert_close, fails, ints, run, t};

#[test]
fn losses() {
    let x = t(&[2, 3, 2], &[1f32, 2., 2., 2., 3., 2., 0., 1., 2., 2., 1., 2.]);
    let target = t(&[2, 2], &[2i64, 1, 0, 2]);
    let weight = t(&[3], &[0.2f32, 0.3, 0.1]);
    let op = |reduction, ignore_index| NllLoss { reduction, ignore_index };
    let none = op(Reduction::None, None);
    assert_close(&run(&none, &[&x, &target]), &t(&[2, 2], &[-3f32, -2., 0., -2.]), 0.);
    for (reduction, ignore, want) in [
        (Reduction::Sum, None, -1.1f32),
        (Reduction::Mean, None, -1.1 / 0.7),
        (Reduction::Sum, Some(2), -0.6),
        (Reduction::Mean, Some(2), -0.6 / 0.5),
    ] {
        let out = run(&op(reduction, ignore), &[&x, &target, &weight]);
        assert_close(&out, &t(&[], &[want]), 1e-6);
    }
    assert_close(&run(&op(Reduction::Mean, Some(2)), &[&x, &target]), &t(&[], &[-1f32]), 1e-6);
    let outside = op(Reduction::Sum, Some(-1));
    let flat = t(&[1, 3], &[1f32, 2., 3.]);
    assert_close(&run(&outside, &[&flat, &t(&[1], &[-1i32])]), &t(&[], &[0f32]), 0.);
    assert!(fails(&outside, &[&flat, &ints(&[3])]).contains("target 3 is not one of 3 classes"));
    assert!(fails(&outside, &[&flat, &ints(&[-2])]).contains("target -2"));
    assert!(fails(&outside, &[&x, &ints(&[0])]).contains("rank"));
}
