//! Three boxes, two of which overlap.

use crate::ops::NonMaxSuppression;
use crate::testing::{fails, ints, run, t};

#[test]
fn overlapping_boxes_are_suppressed() {
    let boxes = t(&[1, 3, 4], &[0f32, 0., 1., 1., 1., 1.1, 0., 0.1, 0., 10., 1., 11.]);
    let scores = t(&[1, 1, 3], &[0.9f32, 0.75, 0.95]);
    let op = NonMaxSuppression::default();
    let (most, overlap, least) = (ints(&[3]), t(&[1], &[0.5f32]), t(&[1], &[0f32]));
    let out = run(&op, &[&boxes, &scores, &most, &overlap, &least]);
    assert_eq!(out, t(&[2, 3], &[0i64, 0, 2, 0, 0, 0]));
    let out = run(&op, &[&boxes, &scores, &ints(&[1]), &overlap, &least]);
    assert_eq!(out, t(&[1, 3], &[0i64, 0, 2]));
    let out = run(&op, &[&boxes, &scores, &most, &t(&[], &[0.95f32]), &t(&[], &[0.8f32])]);
    assert_eq!(out, t(&[2, 3], &[0i64, 0, 2, 0, 0, 0]));
    assert_eq!(run(&op, &[&boxes, &scores]), t(&[0, 3], &[0i64; 0]));
    let centres = t(&[1, 2, 4], &[0.5f32, 0.5, 1., 1., 0.5, 0.6, 1., 1.]);
    let op = NonMaxSuppression { center_point: true };
    let out = run(&op, &[&centres, &t(&[1, 1, 2], &[1f32, 2.]), &most, &overlap]);
    assert_eq!(out, t(&[1, 3], &[0i64, 0, 1]));
    assert!(fails(&op, &[&centres, &scores]).contains("last axis is 3, expected 2"));
}
