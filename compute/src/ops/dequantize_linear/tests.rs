//! The numbers that quantised elements stand for.

use crate::op::Op;
use crate::ops::DequantizeLinear;
use crate::testing::{fails, infers, info, run, t};
use half::f16;
use lgp_memory::DType;

#[test]
fn every_dtype_and_granularity() {
    let half = t(&[], &[0.5f32]);
    let plain = DequantizeLinear::default();
    for (x, zero) in [
        (t(&[3], &[0u8, 128, 255]), t(&[], &[128u8])),
        (t(&[3], &[-128i8, 0, 127]), t(&[], &[0i8])),
        (t(&[3], &[-128i16, 0, 127]), t(&[], &[0i16])),
        (t(&[3], &[0u16, 128, 255]), t(&[1], &[128u16])),
        (t(&[3], &[-128i32, 0, 127]), t(&[], &[0i32])),
    ] {
        assert_eq!(run(&plain, &[&x, &half, &zero]), t(&[3], &[-64f32, 0., 63.5]));
    }
    let x = t(&[2, 3], &[1i8, 2, 3, 4, 5, 6]);
    let op = |axis, block| DequantizeLinear { axis, block, to: None };
    let columns = t(&[3], &[1f32, 10., 100.]);
    assert_eq!(run(&op(1, 0), &[&x, &columns]), t(&[2, 3], &[1f32, 20., 300., 4., 50., 600.]));
    let (rows, zero) = (t(&[2], &[1f32, 10.]), t(&[2], &[0i8, 4]));
    assert_eq!(run(&op(0, 0), &[&x, &rows, &zero]), t(&[2, 3], &[1f32, 2., 3., 0., 10., 20.]));
    let blocks = t(&[1, 3], &[1f32, 10., 100.]);
    assert_eq!(run(&op(0, 2), &[&x, &blocks]), t(&[2, 3], &[1f32, 20., 300., 4., 50., 600.]));
    assert!(fails(&op(0, 1), &[&x, &blocks]).contains("the scale has shape [1, 3]"));
    let halves = run(&plain, &[&t(&[1], &[3u8]), &t(&[], &[f16::from_f32(0.5)])]);
    assert_eq!(halves, t(&[1], &[f16::from_f32(1.5)]));
}

#[test]
fn types() {
    let op = DequantizeLinear { to: Some(DType::F16), ..DequantizeLinear::default() };
    assert_eq!(infers(&op, &[info("u8 n 3"), info("f32")]), "f16 [n,3]");
    let taken = |x: &str| op.scratch_bytes(1, &[Some(&info(x)), Some(&info("f32"))]);
    assert_eq!((taken("u8 2 3"), taken("i4 2 3")), (24, 30), "f32 before f16, and 4 bits as 8");
    assert!(infers(&op, &[info("u8 n 3"), info("f32"), info("i8")]).contains("expected u8"));
    assert!(infers(&op, &[info("f32 n 3"), info("f32")]).contains("not supported for dtype f32"));
}
