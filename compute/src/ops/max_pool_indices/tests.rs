//! The elements at the indices are the maxima.

use super::MaxPoolIndices;
use crate::ops::{MaxUnpool, Pads, Pool, PoolKind};
use crate::testing::{assert_close, ints, noise, run, run_all, t};

fn pool(kernel: &[usize], strides: &[usize], pads: &[usize]) -> Pool {
    Pool {
        kind: PoolKind::Max,
        kernel: kernel.to_vec(),
        strides: strides.to_vec(),
        pads: Pads::Explicit(pads.to_vec()),
        dilations: vec![],
        ceil_mode: false,
    }
}

#[test]
fn indices_point_at_the_maxima() {
    let x = noise(&[2, 3, 5, 4], 1);
    for column_major in [false, true] {
        let pool = pool(&[3, 2], &[2, 1], &[1, 0, 1, 1]);
        let out =
            run_all(&MaxPoolIndices { pool: pool.clone(), column_major }, &[Some(&x)]).unwrap();
        assert_close(&out[0], &run(&pool, &[&x]), 0.);
        let data = x.as_slice::<f32>().unwrap();
        let values = out[0].as_slice::<f32>().unwrap();
        for (value, index) in values.iter().zip(out[1].as_slice::<i64>().unwrap()) {
            let index = usize::try_from(*index).unwrap();
            let (plane, rest) = (index / 20, index % 20);
            let at = if column_major { rest % 5 * 4 + rest / 5 } else { rest };
            assert_eq!(data[plane * 20 + at], *value);
        }
    }
}

#[test]
fn nan_wins_and_ties_go_to_the_first() {
    let x = t(&[1, 1, 4], &[1f32, f32::NAN, 7., 7.]);
    let op = MaxPoolIndices { pool: pool(&[2], &[2], &[]), column_major: false };
    let out = run_all(&op, &[Some(&x)]);
    let indices = &out.unwrap()[1];
    assert_eq!(indices.as_slice::<i64>().unwrap(), [1, 2]);
}

#[test]
fn unpooling_puts_values_back() {
    let x = t(&[1, 1, 2, 2], &[1f32, 2., 3., 4.]);
    let at = t(&[1, 1, 2, 2], &[5i64, 7, 13, 15]);
    let op = MaxUnpool { kernel: vec![2, 2], strides: vec![2, 2], pads: vec![] };
    let mut want = [0f32; 16];
    (want[5], want[7], want[13], want[15]) = (1., 2., 3., 4.);
    assert_close(&run(&op, &[&x, &at]), &t(&[1, 1, 4, 4], &want), 0.);
    let larger = run(&op, &[&x, &at, &ints(&[1, 1, 5, 5])]);
    let values = larger.as_slice::<f32>().unwrap();
    assert_eq!((values[6], values[8], values[16], values[18]), (1., 2., 3., 4.));
    let wrong = t(&[1, 1, 2, 2], &[5i64, 7, 13, 16]);
    assert!(crate::testing::fails(&op, &[&x, &wrong]).contains("index 16"));
}
