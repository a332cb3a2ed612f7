//! The specification's examples.

use crate::ops::GatherNd;
use crate::testing::{fails, infers, info, run, t};

#[test]
fn tuples_name_slices() {
    let x = t(&[2, 2], &[0i32, 1, 2, 3]);
    let op = GatherNd::default();
    assert_eq!(run(&op, &[&x, &t(&[2, 2], &[0i64, 0, -1, 1])]), t(&[2], &[0i32, 3]));
    assert_eq!(run(&op, &[&x, &t(&[2, 1], &[1i64, 0])]), t(&[2, 2], &[2i32, 3, 0, 1]));
    let x = t(&[2, 2, 2], &[0i32, 1, 2, 3, 4, 5, 6, 7]);
    let batched = GatherNd { batch_dims: 1 };
    assert_eq!(run(&batched, &[&x, &t(&[2, 1], &[1i64, 0])]), t(&[2, 2], &[2i32, 3, 4, 5]));
    let pairs = t(&[2, 1, 2], &[0i64, 1, 1, 0]);
    assert_eq!(run(&batched, &[&x, &pairs]), t(&[2, 1], &[1i32, 6]));
    assert_eq!(infers(&op, &[info("f32 n 3 4"), info("i64 k 2")]), "f32 [k,4]");
}

#[test]
fn tuples_that_do_not_fit_are_refused() {
    let x = t(&[2, 2], &[0i32, 1, 2, 3]);
    let op = GatherNd::default();
    assert!(fails(&op, &[&x, &t(&[1, 3], &[0i64; 3])]).contains("3 wide, expected at most 2"));
    assert!(fails(&op, &[&x, &t(&[1, 1], &[2i64])]).contains("index 2 is outside"));
    assert!(fails(&GatherNd { batch_dims: 2 }, &[&x, &t(&[2, 1], &[0i64; 2])]).contains("ranks"));
}
