//! Attention against its definition with loops.

use super::{Attention, Scores};
use crate::ops::Transpose;
use crate::testing::{assert_close, fails, ints, noise, run, run_all, t};
use lgp_memory::Tensor;

const BATCH: usize = 2;
const HEADS: usize = 4;
const QUERIES: usize = 70;
const KEYS: usize = 9;
const SIZE: usize = 3;
const VALUE: usize = 5;

/// Attention by loops; `bias` gives the addend of the score at `[batch, head, query, key]`.
fn naive(q: &Tensor, k: &Tensor, v: &Tensor, bias: impl Fn([usize; 4]) -> f32) -> Tensor {
    let get = |x: &Tensor| x.as_slice::<f32>().unwrap().to_vec();
    let key_heads = k.shape()[1];
    let keys = k.shape()[2];
    let (q, k, v) = (get(q), get(k), get(v));
    let mut y: Vec<f32> = Vec::new();
    for b in 0..BATCH {
        for h in 0..HEADS {
            let kh = h / (HEADS / key_heads);
            for i in 0..QUERIES {
                let mut weights: Vec<f32> = (0..keys)
                    .map(|j| {
                        let q = &q[((b * HEADS + h) * QUERIES + i) * SIZE..][..SIZE];
                        let k = &k[((b * key_heads + kh) * keys + j) * SIZE..][..SIZE];
                        let dot: f32 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                        (dot / (SIZE as f32).sqrt() + bias([b, h, i, j])).exp()
                    })
                    .collect();
                let sum: f32 = weights.iter().sum();
                weights.iter_mut().for_each(|w| *w /= if sum == 0. { 1. } else { sum });
                for d in 0..VALUE {
                    let at = |j: usize| ((b * key_heads + kh) * keys + j) * VALUE + d;
                    y.push(weights.iter().enumerate().map(|(j, w)| w * v[at(j)]).sum());
                }
            }
        }
    }
    t(&[BATCH, HEADS, QUERIES, VALUE], &y)
}

#[test]
fn heads_share_keys() {
    let q = noise(&[BATCH, HEADS, QUERIES, SIZE], 1);
    for key_heads in [1, 2, 4] {
        let k = noise(&[BATCH, key_heads, KEYS, SIZE], 2);
        let v = noise(&[BATCH, key_heads, KEYS, VALUE], 3);
        let want = naive(&q, &k, &v, |_| 0.);
        assert_close(&run(&Attention::default(), &[&q, &k, &v]), &want, 1e-5);
        let causal = Attention { causal: true, ..Attention::default() };
        let want = naive(&q, &k, &v, |[.., i, j]| if j > i { f32::NEG_INFINITY } else { 0. });
        assert_close(&run(&causal, &[&q, &k, &v]), &want, 1e-5);
        // The same with the heads side by side in rank 3.
        let pack = |x: &Tensor| {
            let x = run(&Transpose { perm: Some(vec![0, 2, 1, 3]) }, &[x]);
            let dims = x.shape().to_vec();
            x.reshape([dims[0], dims[1], dims[2] * dims[3]]).unwrap()
        };
        let packed =
            Attention { query_heads: Some(HEADS), key_heads: Some(key_heads), ..causal.clone() };
        assert_close(&run(&packed, &[&pack(&q), &pack(&k), &pack(&v)]), &pack(&want), 1e-5);
    }
}

#[test]
fn masks_hide_keys() {
    let q = noise(&[BATCH, HEADS, QUERIES, SIZE], 1);
    let (k, v) = (noise(&[BATCH, 2, KEYS, SIZE], 2), noise(&[BATCH, 2, KEYS, VALUE], 3));
    let op = Attention::default();
    let seen = |i: usize, j: usize| !(i + j).is_multiple_of(3);
    let bools: Vec<bool> = (0..QUERIES * 7).map(|n| seen(n / 7, n % 7)).collect();
    let mask = t(&[QUERIES, 7], &bools);
    let want =
        naive(&q, &k, &v, |[.., i, j]| if j < 7 && seen(i, j) { 0. } else { f32::NEG_INFINITY });
    assert_close(&run(&op, &[&q, &k, &v, &mask]), &want, 1e-5);
    let bias = noise(&[BATCH, 1, 1, KEYS], 4);
    let added = bias.as_slice::<f32>().unwrap();
    let want = naive(&q, &k, &v, |[b, _, _, j]| added[b * KEYS + j]);
    assert_close(&run(&op, &[&q, &k, &v, &bias]), &want, 1e-5);
    let counts = ints(&[4, 9]);
    let inputs = [Some(&q), Some(&k), Some(&v), None, None, None, Some(&counts)];
    let out = run_all(&op, &inputs).unwrap();
    let want =
        naive(&q, &k, &v, |[b, .., j]| if b == 0 && j >= 4 { f32::NEG_INFINITY } else { 0. });
    assert_close(&out[0], &want, 1e-5);
    let none = t(&[1, KEYS], &[false; KEYS]);
    let zero = run(&op, &[&q, &k, &v, &none]);
    assert!(zero.as_slice::<f32>().unwrap().iter().all(|y| *y == 0.));
    let wide = t(&[1, KEYS + 1], &[true; KEYS + 1]);
    assert!(fails(&op, &[&q, &k, &v, &wide]).contains("does not broadcast"));
    let three = noise(&[BATCH, 3, KEYS, SIZE], 2);
    assert!(fails(&op, &[&q, &three, &three]).contains("3 heads of the key do not divide"));
}

#[test]
fn the_past_comes_first() {
    let q = noise(&[BATCH, HEADS, QUERIES, SIZE], 1);
    let (k, v) = (noise(&[BATCH, 2, KEYS, SIZE], 2), noise(&[BATCH, 2, KEYS, VALUE], 3));
    let part = |x: &Tensor, from: i64, to: i64| {
        let (starts, ends) = (Some(vec![from]), Some(vec![to]));
        run(&crate::ops::Slice { starts, ends, axes: Some(vec![2]), steps: None }, &[x])
    };
    let (old_k, old_v) = (part(&k, 0, 4), part(&v, 0, 4));
    let (new_k, new_v) = (part(&k, 4, 9), part(&v, 4, 9));
    let op = Attention { causal: true, scores: Some(Scores::Softmax), ..Attention::default() };
    let inputs = [Some(&q), Some(&new_k), Some(&new_v), None, Some(&old_k), Some(&old_v)];
    let out = run_all(&op, &inputs).unwrap();
    assert_eq!((&out[1], &out[2]), (&k, &v));
    let want = naive(&q, &k, &v, |[.., i, j]| if j > i + 4 { f32::NEG_INFINITY } else { 0. });
    assert_close(&out[0], &want, 1e-5);
    for row in out[3].as_slice::<f32>().unwrap().chunks_exact(KEYS) {
        assert!((row.iter().sum::<f32>() - 1.).abs() < 1e-5);
    }
    let alone = [Some(&q), Some(&k), Some(&v), None, Some(&old_k)];
    assert!(run_all(&op, &alone).unwrap_err().to_string().contains("together"));
}

#[test]
fn scores_are_shown_at_each_stage() {
    let q = t(&[1, 1, 1, 1], &[2f32]);
    let k = t(&[1, 1, 2, 1], &[1f32, 3.]);
    let bias = t(&[1, 2], &[0.5f32, 0.]);
    let capped = |x: f32| 2. * (x / 2.).tanh();
    let e = (capped(1.) + 0.5 - capped(3.)).exp();
    for (stage, want) in [
        (Scores::Raw, [1f32, 3.]),
        (Scores::Capped, [capped(1.), capped(3.)]),
        (Scores::Masked, [capped(1.) + 0.5, capped(3.)]),
        (Scores::Softmax, [e / (1. + e), 1. / (1. + e)]),
    ] {
        let scores = Some(stage);
        let op = Attention { scale: Some(0.5), softcap: 2., scores, ..Attention::default() };
        let out = run_all(&op, &[Some(&q), Some(&k), Some(&k), Some(&bias)]).unwrap();
        assert_close(&out[3], &t(&[1, 1, 1, 2], &want), 1e-6);
    }
}
