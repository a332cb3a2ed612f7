//! Against sorting everything.

use crate::ops::TopK;
use crate::testing::{assert_close, fails, infers, info, ints, noise, run_all, t};

#[test]
fn the_first_k_of_a_sorted_line() {
    let x = noise(&[3, 40, 5], 7);
    let data = x.as_slice::<f32>().unwrap();
    for largest in [true, false] {
        let op = TopK { axis: -2, largest, k: None };
        let out = run_all(&op, &[Some(&x), Some(&ints(&[7]))]).unwrap();
        assert_eq!(out[0].shape().dims(), [3, 7, 5]);
        for (block, inner) in [(0, 0), (2, 4), (1, 3)] {
            let mut line: Vec<(f32, i64)> =
                (0..40).map(|i| (data[(block * 40 + i) * 5 + inner], i as i64)).collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            if largest {
                line.reverse();
            }
            for (j, (value, at)) in line.into_iter().take(7).enumerate() {
                let i = (block * 7 + j) * 5 + inner;
                assert_eq!(out[0].as_slice::<f32>().unwrap()[i], value);
                assert_eq!(out[1].as_slice::<i64>().unwrap()[i], at);
            }
        }
    }
}

#[test]
fn ties_nan_and_bad_counts() {
    let op = TopK { axis: 0, largest: true, k: Some(3) };
    let x = t(&[4], &[1f32, f32::NAN, 2., 2.]);
    let out = run_all(&op, &[Some(&x)]).unwrap();
    assert_close(&out[0], &t(&[3], &[f32::NAN, 2., 2.]), 0.);
    assert_eq!(out[1], ints(&[1, 2, 3]));
    assert!(fails(&op, &[&t(&[2], &[1i32, 2])]).contains("k is [3], expected one number"));
    assert!(fails(&op, &[&x, &ints(&[-1])]).contains("k is [-1]"));
    assert!(fails(&op, &[&x, &ints(&[1, 1])]).contains("k is [1, 1]"));
    assert_eq!(infers(&op, &[info("f16 n")]), "f16 [3], i64 [3]");
}
