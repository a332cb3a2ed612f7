//! Quantised sums and lookups against floats.

use crate::ops::{QAdd, QLookup, Quant};
use crate::testing::{fails, run, t};
use lgp_memory::DType;

#[test]
fn sums_of_different_scales() {
    let a = Quant { dtype: DType::U8, scale: 0.5, zero: 128 };
    let b = Quant { dtype: DType::I8, scale: 0.25, zero: 0 };
    let y = Quant { dtype: DType::U8, scale: 1., zero: 10 };
    let op = QAdd { a, b, y, limits: (0., f32::INFINITY) };
    let (left, right) = (t(&[4], &[130u8, 126, 255, 131]), t(&[4], &[4i8, 4, 127, 4]));
    // 1 + 1, -1 + 1, 63.5 + 31.75, 1.5 + 1 half to even.
    assert_eq!(run(&op, &[&left, &right]), t(&[4], &[12u8, 10, 105, 12]));
    assert!(fails(&op, &[&left, &t(&[1], &[0i8])]).contains("shapes"));
    assert!(fails(&op, &[&left, &left]).contains("expected i8"));
}

#[test]
fn tables() {
    let table = Box::new(std::array::from_fn(|i| 255 - u8::try_from(i).unwrap()));
    let op = QLookup { from: DType::I8, to: DType::U8, table };
    assert_eq!(run(&op, &[&t(&[3], &[-1i8, 0, 5])]), t(&[3], &[0u8, 255, 250]));
}
