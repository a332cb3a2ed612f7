//! Each form of mask against its result written out.

use super::AttentionMask;
use crate::testing::{fails, noise, run, t};

#[test]
fn every_form() {
    let op = AttentionMask { hidden: -9. };
    let (q, k) = (noise(&[2, 2, 4], 0), noise(&[2, 3, 4], 1));
    let ends = t(&[2], &[2i32, 5]);
    let want = t(&[2, 1, 1, 3], &[0f32, 0., -9., 0., 0., 0.]);
    assert_eq!(run(&op, &[&ends, &q, &k]), want);
    let ranges = t(&[4], &[2i32, 3, 1, -1]);
    let want = t(&[2, 1, 1, 3], &[-9f32, 0., -9., 0., 0., 0.]);
    assert_eq!(run(&op, &[&ranges, &q, &k]), want);
    // The past adds keys.
    let past = noise(&[2, 1, 1, 4], 2);
    let by_key = t(&[2, 4], &[1i32, 0, 2, -1, 1, 1, 1, 0]);
    let want = t(&[2, 1, 1, 4], &[0f32, -9., 0., -9., 0., 0., 0., -9.]);
    assert_eq!(run(&op, &[&by_key, &q, &k, &past]), want);
    let by_query = t(&[2, 2, 3], &[1i32, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0]);
    let want = [0f32, -9., 0., 0., 0., 0., -9., -9., -9., -9., 0., -9.];
    assert_eq!(run(&op, &[&by_query, &q, &k]), t(&[2, 1, 2, 3], &want));
    for none in [t(&[1, 1], &[0i32]), t(&[2, 1], &[0i32, 1])] {
        assert_eq!(run(&op, &[&none, &q, &k]), t(&[2, 1, 1, 3], &[0f32; 6]));
    }
}

#[test]
fn what_is_refused() {
    let op = AttentionMask { hidden: -9. };
    let (q, k) = (noise(&[2, 2, 4], 0), noise(&[2, 3, 4], 1));
    let zeros = |dims: &[usize]| t(dims, &vec![0i32; dims.iter().product()]);
    let message = fails(&op, &[&zeros(&[3]), &q, &k]);
    assert_eq!(message, "AttentionMask: a mask of shape [3] for 2 sequences");
    assert!(fails(&op, &[&zeros(&[2, 4]), &q, &k]).contains("the keys of the mask"));
    assert!(fails(&op, &[&zeros(&[3, 2, 3]), &q, &k]).contains("the batch of the mask"));
    assert!(fails(&op, &[&zeros(&[2, 1, 3, 3]), &q, &k]).contains("a mask of rank 4"));
    assert!(fails(&op, &[&q, &q, &k]).contains("dtype f32, expected i32"));
}
