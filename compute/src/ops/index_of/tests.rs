//! Positions of elements in lists.

use super::*;
use crate::testing::{fails, run, t};

#[test]
fn elements_are_found_whatever_they_are() {
    let list = t(&[4], &[f32::NAN, 0., 1.5, 1.5]);
    let x = t(&[2, 2], &[-0f32, f32::NAN, 1.5, 7.]);
    assert_eq!(run(&IndexOf::new(&list).unwrap(), &[&x]), t(&[2, 2], &[1i64, 0, 2, 4]));
    let op = IndexOf::new(&t(&[2], &[-1i16, 300])).unwrap();
    assert_eq!(run(&op, &[&t(&[3], &[300i16, 0, -1])]), t(&[3], &[1i64, 2, 0]));
    let strict = op.strict();
    let error = fails(&strict, &[&t(&[3], &[300i16, 0, 5])]);
    assert_eq!(error, "IndexOf: element 1 is none of the 2 expected ones");
    assert!(fails(&strict, &[&t(&[1], &[300i64])]).contains("expected i16"));
    let op = IndexOf::new(&Tensor::from_strings([2], &["b", ""]).unwrap()).unwrap();
    let x = Tensor::from_strings([3], &["", "a", "b"]).unwrap();
    assert_eq!(run(&op, &[&x]), t(&[3], &[1i64, 2, 0]));
}
