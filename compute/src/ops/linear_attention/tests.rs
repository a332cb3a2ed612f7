//! The recurrence against its equations, written out element by element.

use super::LinearAttention;
use crate::testing::{assert_close, noise, run_all, t};

#[test]
fn rules_follow_their_equations() {
    let (batch, length, heads, groups, k, v) = (2, 5, 2, 3, 4, 3);
    let query = noise(&[batch, length, heads * groups * k], 1);
    let key = noise(&[batch, length, heads * k], 2);
    let value = noise(&[batch, length, heads * v], 3);
    let past = noise(&[batch, heads, k, v], 4);
    for (gated, delta, per_element) in
        [(false, false, false), (true, false, true), (false, true, false), (true, true, false)]
    {
        let decay = noise(&[batch, length, if per_element { heads * k } else { heads }], 5);
        let beta = noise(&[batch, length, heads], 6);
        let op = LinearAttention {
            query_heads: heads * groups,
            key_heads: heads,
            scale: Some(0.5),
            gated,
            delta,
        };
        let inputs = [
            Some(&query),
            Some(&key),
            Some(&value),
            Some(&past),
            gated.then_some(&decay),
            delta.then_some(&beta),
        ];
        let out = run_all(&op, &inputs).unwrap();
        let data = [&query, &key, &value, &past, &decay, &beta];
        let [q, ks, vs, s, g, b] = data.map(|x| x.as_slice::<f32>().unwrap());
        let mut state = s.to_vec();
        let mut want = vec![0f32; batch * length * heads * groups * v];
        for (n, step) in (0..batch).flat_map(|n| (0..length).map(move |step| (n, step))) {
            let row = n * length + step;
            for h in 0..heads {
                let at = row * heads + h;
                let cell = |i: usize, j: usize| ((n * heads + h) * k + i) * v + j;
                for i in 0..k {
                    let log = if per_element { g[at * k + i] } else { g[at] };
                    let factor = if gated { log.exp() } else { 1. };
                    (0..v).for_each(|j| state[cell(i, j)] *= factor);
                }
                for j in 0..v {
                    let held: f32 = (0..k).map(|i| state[cell(i, j)] * ks[at * k + i]).sum();
                    let x = vs[at * v + j];
                    let x = if delta { b[at] * (x - held) } else { x };
                    (0..k).for_each(|i| state[cell(i, j)] += ks[at * k + i] * x);
                    for group in 0..groups {
                        let q = &q[(at * groups + group) * k..][..k];
                        let read: f32 = (0..k).map(|i| state[cell(i, j)] * q[i]).sum();
                        want[(at * groups + group) * v + j] = 0.5 * read;
                    }
                }
            }
        }
        assert_close(&out[0], &t(&[batch, length, heads * groups * v], &want), 1e-5);
        assert_close(&out[1], &t(&[batch, heads, k, v], &state), 1e-5);
        let wrong = LinearAttention { gated: !gated, ..op };
        assert!(run_all(&wrong, &inputs).unwrap_err().to_string().contains("update rule"));
    }
}
