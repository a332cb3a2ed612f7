//! Against loops, in one call and in two.

use super::CausalConv;
use crate::testing::{assert_close, fails, noise, run_all, t};

#[test]
fn calls_continue_each_other() {
    let x = noise(&[2, 3, 7], 1);
    let (weight, bias) = (noise(&[3, 1, 4], 2), noise(&[3], 3));
    let out = run_all(&CausalConv, &[Some(&x), Some(&weight), Some(&bias)]).unwrap();
    let (data, w) = (x.as_slice::<f32>().unwrap(), weight.as_slice::<f32>().unwrap());
    let mut want = Vec::new();
    for r in 0..6 {
        for step in 0..7 {
            let mut y = bias.as_slice::<f32>().unwrap()[r % 3];
            for k in 0..4 {
                if step + k >= 3 {
                    y += w[r % 3 * 4 + k] * data[r * 7 + step + k - 3];
                }
            }
            want.push(y);
        }
    }
    assert_close(&out[0], &t(&[2, 3, 7], &want), 1e-6);
    // The first of two calls is shorter than the state.
    let part = |from: usize, to: usize| {
        let rows = data.chunks_exact(7).flat_map(|row| row[from..to].to_vec());
        t(&[2, 3, to - from], &rows.collect::<Vec<_>>())
    };
    let first = run_all(&CausalConv, &[Some(&part(0, 2)), Some(&weight), Some(&bias)]).unwrap();
    let rest = part(2, 7);
    let inputs = [Some(&rest), Some(&weight), Some(&bias), Some(&first[1])];
    let second = run_all(&CausalConv, &inputs).unwrap();
    assert_close(&second[1], &out[1], 0.);
    let tail: Vec<f32> = want.chunks_exact(7).flat_map(|row| row[2..].to_vec()).collect();
    assert_close(&second[0], &t(&[2, 3, 5], &tail), 1e-6);
    assert!(fails(&CausalConv, &[&x, &noise(&[3, 2, 4], 0)]).contains("second dimension"));
}
