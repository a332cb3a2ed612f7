//! Values worked out by hand.

use crate::ops::GatherElements;
use crate::testing::{fails, infers, info, run, t};

#[test]
fn elements_follow_their_index() {
    let x = t(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let out = run(&GatherElements { axis: 1 }, &[&x, &t(&[2, 2], &[0i64, -1, 2, 0])]);
    assert_eq!(out, t(&[2, 2], &[1i32, 3, 6, 4]));
    let out = run(&GatherElements { axis: 0 }, &[&x, &t(&[1, 2], &[1i32, 0])]);
    assert_eq!(out, t(&[1, 2], &[4i32, 2]));
    assert_eq!(
        infers(&GatherElements { axis: 0 }, &[info("f32 n 3"), info("i64 k 3")]),
        "f32 [k,3]"
    );
}

#[test]
fn indices_that_do_not_fit_are_refused() {
    let x = t(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let op = GatherElements { axis: 1 };
    assert!(fails(&op, &[&x, &t(&[1, 1], &[3i64])]).contains("index 3 is outside"));
    assert!(fails(&op, &[&x, &t(&[3, 1], &[0i64, 0, 0])]).contains("do not fit into [2,3]"));
    assert!(fails(&op, &[&x, &t(&[1], &[0i64])]).contains("do not fit"));
    assert!(fails(&op, &[&x, &t(&[1, 1], &[0f32])]).contains("dtype f32, expected i64"));
}
