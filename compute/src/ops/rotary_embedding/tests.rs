//! Pairs are rotated by the angle of their position.

use super::RotaryEmbedding;
use crate::testing::{assert_close, fails, noise, run, t};

#[test]
fn pairs_turn() {
    let (batch, heads, length, size, rotated) = (2, 3, 4, 6, 4);
    let x = noise(&[batch, heads, length, size], 1);
    let angles: Vec<f32> = (0..10u8).map(|i| f32::from(i) * 0.3).collect();
    let cos = t(&[5, 2], &angles.iter().map(|a| a.cos()).collect::<Vec<_>>());
    let sin = t(&[5, 2], &angles.iter().map(|a| a.sin()).collect::<Vec<_>>());
    let ids = [4i64, 0, 2, 1, 1, 3, 3, 0];
    let positions = t(&[batch, length], &ids);
    for interleaved in [false, true] {
        let data = x.as_slice::<f32>().unwrap();
        let mut want = data.to_vec();
        for row in 0..batch * heads * length {
            let token = row / (heads * length) * length + row % length;
            let position = usize::try_from(ids[token]).unwrap();
            for pair in 0..rotated / 2 {
                let (i, j) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + 2) };
                let (a, b) = (data[row * size + i], data[row * size + j]);
                let (sin, cos) = angles[position * 2 + pair].sin_cos();
                want[row * size + i] = cos * a - sin * b;
                want[row * size + j] = sin * a + cos * b;
            }
        }
        let want = t(&[batch, heads, length, size], &want);
        let op = RotaryEmbedding { interleaved, heads: None, rotated };
        assert_close(&run(&op, &[&x, &cos, &sin, &positions]), &want, 1e-6);
        // The same with the heads inside the last axis.
        let swap = crate::ops::Transpose { perm: Some(vec![0, 2, 1, 3]) };
        let packed = |x| run(&swap, &[x]).reshape([batch, length, heads * size]).unwrap();
        let op = RotaryEmbedding { heads: Some(heads), ..op };
        let got = run(&op, &[&packed(&x), &cos, &sin, &positions]);
        assert_close(&got, &packed(&want), 1e-6);
        let far = t(&[batch, length], &[5i64; 8]);
        assert!(fails(&op, &[&x, &cos, &sin, &far]).contains("position 5 is not one of 5"));
        let odd = RotaryEmbedding { rotated: 3, ..op };
        assert!(fails(&odd, &[&x, &cos, &sin, &positions]).contains("3 of 6 elements turn"));
    }
}
