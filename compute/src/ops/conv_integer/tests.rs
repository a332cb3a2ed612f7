//! Integer convolutions against those of floats.

use crate::ops::{Conv, ConvInteger, Pads};
use crate::testing::{fails, infers, info, run, t};

#[test]
fn zero_points_reach_into_the_padding() {
    let x = t(&[1, 1, 3, 3], &[2u8, 3, 4, 5, 6, 7, 8, 9, 10]);
    let w = t(&[1, 1, 2, 2], &[1u8, 1, 1, 1]);
    let one = t(&[], &[1u8]);
    let plain = ConvInteger::default();
    assert_eq!(run(&plain, &[&x, &w, &one]), t(&[1, 1, 2, 2], &[12i32, 16, 24, 28]));
    let conv = Conv { pads: Pads::Explicit(vec![1; 4]), ..Conv::default() };
    let want = [1i32, 3, 5, 3, 5, 12, 16, 9, 11, 24, 28, 15, 7, 15, 17, 9];
    assert_eq!(run(&ConvInteger { conv }, &[&x, &w, &one]), t(&[1, 1, 4, 4], &want));
    let w = t(&[2, 1, 1, 1], &[3i8, 3]);
    let zero = t(&[2], &[3i8, 2]);
    let (x, one) = (t(&[1, 1, 1, 1], &[-5i8]), t(&[], &[1i8]));
    assert_eq!(run(&plain, &[&x, &w, &one, &zero]), t(&[1, 2, 1, 1], &[0i32, -6]));
    assert!(fails(&plain, &[&x, &w, &zero]).contains("2 zero points given, expected 1 or 1"));
    assert_eq!(infers(&plain, &[info("u8 n 3 4 4"), info("i8 8 3 3 3")]), "i32 [n,8,2,2]");
}
