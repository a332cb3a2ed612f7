//! Fused attention against its formula.

use super::*;
use crate::ops::{Binary, BinaryKind, MatMul, Softmax, Transpose};
use crate::testing::{assert_close, fails, noise, run, run_all, t};

fn moved(x: &Tensor, axes: [usize; 4]) -> Tensor {
    run(&Transpose { perm: Some(axes.to_vec()) }, &[x])
}

/// Attention on operands that lie as it computes.
fn plain() -> Sdpa {
    let axes = [0, 1, 2, 3];
    Sdpa { q: axes, k: axes, v: axes, swapped: false, scale: 1., sharing: 1 }
}

/// Each head so many times, one after the other.
fn repeated(x: &Tensor, times: usize) -> Tensor {
    let &[b, h, rows, columns] = x.shape().dims() else { panic!("rank 4") };
    let size = rows * columns;
    let x = x.as_slice::<f32>().unwrap();
    let heads = (0..b * h * times).flat_map(|i| &x[i / times * size..][..size]);
    t(&[b, h * times, rows, columns], &heads.copied().collect::<Vec<f32>>())
}

/// The chain that the operator replaces, step by step.
fn chain(op: &Sdpa, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let (k, v) = (repeated(&moved(k, op.k), op.sharing), repeated(&moved(v, op.v), op.sharing));
    let scores = run(&MatMul, &[&moved(q, op.q), &k]);
    let mut scores = run(&Binary::new(BinaryKind::Mul), &[&scores, &t(&[], &[op.scale])]);
    if let Some(mask) = mask {
        scores = run(&Binary::new(BinaryKind::Add), &[&scores, mask]);
    }
    let weights = run(&Softmax { axis: -1, log: false, flatten: false }, &[&scores]);
    let out = run(&MatMul, &[&weights, &v]);
    if op.swapped { moved(&out, [0, 2, 1, 3]) } else { out }
}

#[test]
fn it_is_the_chain() {
    let heads = Sdpa {
        q: [0, 2, 1, 3],
        k: [0, 2, 3, 1],
        v: [0, 2, 1, 3],
        swapped: true,
        scale: 0.3,
        sharing: 1,
    };
    let plain = plain();
    let turned = Sdpa { k: [0, 1, 3, 2], v: [0, 1, 3, 2], ..plain.clone() };
    let shared = Sdpa { sharing: 3, ..plain.clone() };
    for (op, q, k, v, masks) in [
        (
            &heads,
            [2, 130, 3, 20],
            [2, 70, 3, 20],
            [2, 70, 3, 40],
            vec![vec![2, 1, 1, 70], vec![130, 70], vec![]],
        ),
        // Few rows, with sizes beside those of registers.
        (&heads, [1, 1, 2, 64], [1, 9, 2, 64], [1, 9, 2, 64], vec![vec![1, 1, 1, 9]]),
        (
            &heads,
            [2, 3, 2, 37],
            [2, 70, 2, 37],
            [2, 70, 2, 150],
            vec![vec![2, 1, 3, 70], vec![3, 1]],
        ),
        (&plain, [1, 2, 4, 19], [2, 1, 19, 133], [1, 1, 133, 65], vec![vec![2, 2, 4, 133]]),
        (&plain, [1, 2, 1, 1], [1, 2, 1, 1], [1, 2, 1, 1], vec![vec![1]]),
        // Without depth, all keys have the same weight.
        (&heads, [1, 2, 2, 0], [1, 5, 2, 0], [1, 5, 2, 3], vec![vec![]]),
        (&heads, [1, 9, 2, 0], [1, 5, 2, 0], [1, 5, 2, 3], vec![vec![]]),
        // Three heads of queries for each head of keys, with a few rows and with many.
        (&shared, [2, 6, 2, 19], [2, 2, 19, 33], [2, 2, 33, 65], vec![vec![2, 1, 2, 33], vec![]]),
        (&shared, [1, 6, 9, 19], [1, 2, 19, 33], [1, 2, 33, 65], vec![vec![9, 33], vec![]]),
        (&turned, [1, 2, 2, 33], [1, 2, 7, 33], [1, 2, 65, 7], vec![vec![]]),
        (&plain, [1, 2, 5, 7], [2, 1, 7, 33], [1, 1, 33, 3], vec![vec![2, 2, 5, 33], vec![5, 1]]),
    ] {
        let (q, k, v) = (noise(&q, 1), noise(&k, 2), noise(&v, 3));
        let want = chain(op, &q, &k, &v, None);
        assert_close(&run_all(op, &[Some(&q), Some(&k), Some(&v)]).unwrap()[0], &want, 1e-5);
        for mask in masks {
            let mask = noise(&mask, 4);
            let want = chain(op, &q, &k, &v, Some(&mask));
            let inputs = [Some(&q), Some(&k), Some(&v), Some(&mask)];
            assert_close(&run_all(op, &inputs).unwrap()[0], &want, 1e-5);
        }
    }
}

#[test]
fn a_row_that_is_masked_out_is_nan_and_others_are_not() {
    let op = plain();
    let x = noise(&[1, 1, 2, 2], 1);
    let low = f32::NEG_INFINITY;
    let mask = t(&[2, 2], &[low, low, 0., low]);
    let out = run_all(&op, &[Some(&x), Some(&x), Some(&x), Some(&mask)]).unwrap();
    let out = out[0].as_slice::<f32>().unwrap();
    assert!(out[..2].iter().all(|x| x.is_nan()));
    assert_eq!(out[2..], x.as_slice::<f32>().unwrap()[..2]);
}

#[test]
fn wrong_operands_are_named() {
    let op = plain();
    let x = |dims: [usize; 4]| noise(&dims, 0);
    let (q, k, v) = (x([1, 1, 2, 4]), x([1, 1, 4, 3]), x([1, 1, 3, 5]));
    assert!(
        fails(&op, &[&q, &x([1, 1, 5, 3]), &v]).contains("the depth of input 1 is 5, expected 4")
    );
    assert!(
        fails(&op, &[&q, &k, &x([1, 1, 2, 5])]).contains("the length of input 2 is 2, expected 3")
    );
    let none = Sdpa { sharing: 0, ..op.clone() };
    assert!(fails(&none, &[&q, &k, &v]).contains("0 heads share a head of keys"));
    let two = Sdpa { sharing: 2, ..op.clone() };
    let (q3, k2) = (x([1, 3, 2, 4]), x([1, 2, 4, 3]));
    assert!(fails(&two, &[&q3, &k2, &v]).contains("cannot broadcast"));
    assert!(fails(&op, &[&q, &k, &noise(&[3, 5], 0)]).contains("rank 2"));
    assert!(fails(&op, &[&q, &k, &v, &noise(&[1, 1, 1, 1, 3], 0)]).contains("rank 5"));
    assert!(fails(&op, &[&q, &k, &v, &noise(&[7], 0)]).contains("cannot broadcast"));
}
