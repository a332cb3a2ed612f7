//! Sparse products against the dense product.

use crate::ops::{MatMul, MatMulSparse};
use crate::testing::{assert_close, fails, noise, run, t};
use lgp_memory::Tensor;

/// A weight of which one block in `apart` is not zero.
fn weight(k: usize, n: usize, block: usize, apart: usize) -> Tensor {
    let dense = noise(&[k, n], 1);
    let dense = dense.as_slice::<f32>().unwrap().iter().enumerate();
    let kept = |i: usize| (i / n / block * 7 + i % n / block * 3).is_multiple_of(apart);
    t(&[k, n], &dense.map(|(i, x)| if kept(i) { *x } else { 0. }).collect::<Vec<_>>())
}

#[test]
fn few_blocks_or_elements_are_multiplied_alone() {
    for (k, n, block, apart, packed) in [
        (64, 96, 32, 4, Some(32)),
        (96, 48, 16, 5, Some(16)),
        (40, 33, 1, 31, Some(1)),
        (64, 64, 32, 1, None),
        (40, 33, 1, 3, None),
    ] {
        let w = weight(k, n, block, apart);
        let found = MatMulSparse::pack(&w.view()).unwrap();
        assert_eq!(found.as_ref().map(|(op, _)| op.block), packed, "{k} {n} {block} {apart}");
        let Some((op, [starts, rows, values])) = found else { continue };
        let a = noise(&[2, 5, k], 2);
        let y = run(&op, &[&a, &starts, &rows, &values]);
        assert_close(&y, &run(&MatMul, &[&a, &w]), 1e-5);
    }
}

#[test]
fn blocks_outside_of_the_weight_are_refused() {
    let op = MatMulSparse { k: 2, n: 2, block: 1 };
    let (a, values) = (noise(&[1, 2], 1), t(&[2, 1, 1], &[1f32, 2.]));
    for (starts, rows) in
        [([0, 1, 2], [0, 2]), ([0, 1, 2], [-1, 0]), ([0, 2, 1], [0, 1]), ([0, 1, 3], [0, 1])]
    {
        let message = fails(&op, &[&a, &t(&[3], &starts), &t(&[2], &rows), &values]);
        assert!(message.contains("not in a weight of 2 x 2"), "{message}");
    }
}
