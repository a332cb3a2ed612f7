//! Integer products against a naive loop.

use crate::ops::MatMulInteger;
use crate::testing::{fails, infers, info, run, t};

#[test]
fn zero_points_per_tensor_row_and_column() {
    let a = t(&[2, 3], &[11u8, 7, 3, 10, 6, 2]);
    let b = t(&[3, 2], &[1u8, 4, 2, 5, 3, 6]);
    let product = |za: [i32; 2], zb: [i32; 2]| {
        let (a, b) = ([[11, 7, 3], [10, 6, 2]], [[1, 4], [2, 5], [3, 6]]);
        let mut out = vec![];
        for i in 0..2 {
            for j in 0..2 {
                out.push((0..3).map(|k: usize| (a[i][k] - za[i]) * (b[k][j] - zb[j])).sum::<i32>());
            }
        }
        t(&[2, 2], &out)
    };
    assert_eq!(run(&MatMulInteger, &[&a, &b]), product([0, 0], [0, 0]));
    let (one, other) = (t(&[], &[12u8]), t(&[1], &[3u8]));
    assert_eq!(run(&MatMulInteger, &[&a, &b, &one, &other]), product([12, 12], [3, 3]));
    let (rows, columns) = (t(&[2], &[12u8, 9]), t(&[2], &[3u8, 1]));
    assert_eq!(run(&MatMulInteger, &[&a, &b, &rows, &columns]), product([12, 9], [3, 1]));
    let rows = t(&[2, 1], &[12u8, 9]);
    assert_eq!(run(&MatMulInteger, &[&a, &b, &rows]), product([12, 9], [0, 0]));
    assert!(fails(&MatMulInteger, &[&a, &b, &t(&[3], &[0u8; 3])]).contains("each row of a"));
    assert!(fails(&MatMulInteger, &[&a, &b, &one, &t(&[3], &[0u8; 3])]).contains("each column"));
}

#[test]
fn batches_broadcast_and_vectors_lose_their_axis() {
    let a = t(&[2, 1, 2], &[1i8, 2, 3, -4]);
    let b = t(&[2, 2], &[1i8, 0, 0, 1]);
    assert_eq!(run(&MatMulInteger, &[&a, &b]), t(&[2, 1, 2], &[1i32, 2, 3, -4]));
    let v = t(&[2], &[1i8, -1]);
    assert_eq!(run(&MatMulInteger, &[&v, &b]), t(&[2], &[1i32, -1]));
    assert_eq!(run(&MatMulInteger, &[&b, &v]), t(&[2], &[1i32, -1]));
    assert_eq!(run(&MatMulInteger, &[&v, &v]), t(&[], &[2i32]));
    assert_eq!(infers(&MatMulInteger, &[info("u8 n 3"), info("i8 3 4")]), "i32 [n,4]");
    assert!(infers(&MatMulInteger, &[info("f32 n 3"), info("i8 3 4")]).contains("i8 or u8"));
}

#[test]
fn zero_points_of_other_matrices_are_named() {
    let of = |a, za, b, zb| infers(&MatMulInteger, &[info(a), info(b), info(za), info(zb)]);
    assert_eq!(of("u8 2 5 3", "u8 2 5 1", "i8 2 3 4", "i8 2 1 4"), "i32 [2,5,4]");
    assert!(of("u8 2 5 3", "u8 1", "i8 2 3 4", "i8 1 1 4").contains("each column of b"));
    assert!(of("u8 2 5 3", "u8 1 5 1", "i8 2 3 4", "i8 1").contains("each row of a"));
}
