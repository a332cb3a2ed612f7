//! Products against loops, numpy's shape rules, and operands that do not fit.

use crate::ops::MatMul;
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use lgp_memory::Tensor;
use proptest::prelude::*;

fn naive(a: &Tensor, b: &Tensor, m: usize, n: usize, k: usize) -> Vec<f32> {
    let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
    let at = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f32>();
    (0..m * n).map(|ij| at(ij / n, ij % n)).collect()
}

proptest! {
    #[test]
    fn agrees_with_loops(m in 0usize..40, n in 0usize..40, k in 0usize..40, seed: u64) {
        let (a, b) = (noise(&[m, k], seed), noise(&[k, n], seed ^ 1));
        let want = t(&[m, n], &naive(&a, &b, m, n, k));
        assert_close(&run(&MatMul, &[&a, &b]), &want, 1e-5);
        let stack = noise(&[2, 3, m, k], seed);
        let out = run(&MatMul, &[&stack, &b]);
        prop_assert_eq!(out.shape().dims(), [2, 3, m, n]);
        assert_close(&out.reshape([6 * m, n]).unwrap(), &t(&[6 * m, n], &naive(&stack, &b, 6 * m, n, k)), 1e-5);
    }
}

#[test]
fn batches_broadcast() {
    let a = t(&[2, 1, 1, 2], &[1f32, 2., 3., 4.]);
    let b = t(&[3, 2, 1], &[1f32, 0., 0., 1., 1., 1.]);
    let out = t(&[2, 3, 1, 1], &[1f32, 2., 3., 3., 4., 7.]);
    assert_close(&run(&MatMul, &[&a, &b]), &out, 0.);
}

#[test]
fn vectors_lose_their_axis() {
    let (v, m) = (t(&[2], &[1f32, 2.]), t(&[2, 2], &[1f32, 2., 3., 4.]));
    assert_close(&run(&MatMul, &[&v, &m]), &t(&[2], &[7f32, 10.]), 0.);
    assert_close(&run(&MatMul, &[&m, &v]), &t(&[2], &[5f32, 11.]), 0.);
    assert_close(&run(&MatMul, &[&v, &v]), &t(&[], &[5f32]), 0.);
    let stack = t(&[2, 2, 1], &[1f32, 2., 3., 4.]);
    assert_close(&run(&MatMul, &[&v, &stack]), &t(&[2, 1], &[5f32, 11.]), 0.);
}

#[test]
fn shapes() {
    for (a, b, out) in [
        ("f32 n 4 k", "f32 k 8", "f32 [n,4,8]"),
        ("f32 n 1 4 5", "f32 6 5 8", "f32 [n,6,4,8]"),
        ("f32 2 3", "f32 4 5", "MatMul: the inner dimension of input 1 is 4, expected 3"),
        ("f32 2 3", "f64 3 5", "MatMul: input 1 has dtype f64, expected f32"),
        ("f32", "f32 3", "MatMul: input 0 is a scalar, expected rank 1 or more"),
        ("i64 2 2", "i64 2 2", "MatMul: dtype is i64, expected a floating-point one"),
        ("f32 2 4 5", "f32 3 5 4", "MatMul: cannot broadcast [2] and [3] to each other"),
    ] {
        assert_eq!(infers(&MatMul, &[info(a), info(b)]), out);
    }
    assert!(fails(&MatMul, &[&noise(&[2, 3], 0), &noise(&[2, 3], 0)]).contains("inner dimension"));
}
