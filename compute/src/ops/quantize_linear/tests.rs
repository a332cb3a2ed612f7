//! Numbers rounded to few bits, and back.

use crate::ops::{DequantizeLinear, QuantizeLinear};
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use lgp_memory::{DType, I4};

#[test]
fn rounds_half_to_even_and_saturates() {
    let x = t(&[8], &[0f32, 1., 3., 5., -1., 1000., -1000., f32::NAN]);
    let scale = t(&[], &[2f32]);
    for (zero, want) in [
        (t(&[], &[128u8]), t(&[8], &[128u8, 128, 130, 130, 128, 255, 0, 0])),
        (t(&[1], &[3u8]), t(&[8], &[3u8, 3, 5, 5, 3, 255, 0, 0])),
        (t(&[], &[-1i8]), t(&[8], &[-1i8, -1, 1, 1, -1, 127, -128, -128])),
        (t(&[], &[9i16]), t(&[8], &[9i16, 9, 11, 11, 9, 509, -491, -32768])),
        (t(&[], &[9u16]), t(&[8], &[9u16, 9, 11, 11, 9, 509, 0, 0])),
    ] {
        assert_eq!(run(&QuantizeLinear::default(), &[&x, &scale, &zero]), want);
    }
    let large = t(&[2], &[1i32 << 30, -5]);
    let to = QuantizeLinear { to: Some(DType::I8), ..QuantizeLinear::default() };
    assert_eq!(run(&to, &[&large, &scale]), t(&[2], &[127i8, -2]));
}

#[test]
fn scales_along_an_axis_and_in_blocks() {
    let x = t(&[2, 3], &[2f32, 4., 8., 2., 4., 8.]);
    let op = |axis, block| QuantizeLinear { axis, block, ..QuantizeLinear::default() };
    let columns = t(&[3], &[1f32, 2., 4.]);
    assert_eq!(run(&op(1, 0), &[&x, &columns]), t(&[2, 3], &[2u8, 2, 2, 2, 2, 2]));
    let rows = t(&[2], &[1f32, 2.]);
    let zero = t(&[2], &[0u8, 10]);
    assert_eq!(run(&op(-2, 0), &[&x, &rows, &zero]), t(&[2, 3], &[2u8, 4, 8, 11, 12, 14]));
    let blocks = t(&[2, 2], &[1f32, 2., 2., 4.]);
    assert_eq!(run(&op(1, 2), &[&x, &blocks]), t(&[2, 3], &[2u8, 4, 4, 1, 2, 2]));
    assert!(fails(&op(1, 1), &[&x, &blocks]).contains("the scale has shape [2, 2]"));
    assert!(fails(&op(0, 0), &[&x, &columns]).contains("expected [2]"));
    assert!(fails(&op(0, 0), &[&x, &rows, &t(&[3], &[0u8; 3])]).contains("zero point has shape"));
    assert!(fails(&op(0, 0), &[&x, &rows, &t(&[2], &[0i32; 2])]).contains("i32"));
}

#[test]
fn many_elements_agree_with_the_formula() {
    let x = noise(&[5, 4099], 3);
    let out = run(&QuantizeLinear::default(), &[&x, &t(&[], &[0.013f32]), &t(&[], &[7i8])]);
    for (q, x) in out.as_slice::<i8>().unwrap().iter().zip(x.as_slice::<f32>().unwrap()) {
        let want = ((x / 0.013).round_ties_even() + 7.).clamp(-128., 127.);
        assert_eq!(f32::from(*q), want);
    }
}

#[test]
fn elements_of_few_bits() {
    let x = t(&[2, 2], &[1f32, -3., 100., 0.3]);
    let rows = t(&[2], &[1f32, 0.1]);
    let to = |to| QuantizeLinear { axis: 0, to: Some(to), ..QuantizeLinear::default() };
    let back = DequantizeLinear { axis: 0, ..DequantizeLinear::default() };
    for (dtype, want) in [
        (DType::I4, [1f32, -3., 0.7, 0.3]),
        (DType::U4, [1., 0., 1.5, 0.3]),
        (DType::I2, [1., -2., 0.1, 0.1]),
        (DType::U2, [1., 0., 0.3, 0.3]),
        (DType::F8E4M3FN, [1., -3., 44.8, 0.3]),
        (DType::F8E5M2, [1., -3., 102.4, 0.3]),
        (DType::F4E2M1, [1., -3., 0.6, 0.3]),
    ] {
        let q = run(&to(dtype), &[&x, &rows]);
        assert_eq!(q.dtype(), dtype);
        assert_close(&run(&back, &[&q, &rows]), &t(&[2, 2], &want), 1e-6);
    }
    let zero = t(&[2], &[I4::wrapping(1), I4::wrapping(-1)]);
    let q = run(&to(DType::I4), &[&x, &rows, &zero]);
    assert_eq!(q, t(&[2, 2], &[2, -2, 7, 2].map(I4::wrapping)));
    assert_close(&run(&back, &[&q, &rows, &zero]), &t(&[2, 2], &[1f32, -3., 0.8, 0.3]), 1e-6);
}

#[test]
fn types() {
    let scalar = info("f32");
    let op = QuantizeLinear::default();
    assert_eq!(infers(&op, &[info("f32 n 3"), scalar.clone(), info("i8")]), "i8 [n,3]");
    assert_eq!(infers(&op, &[info("f16 n"), scalar]), "u8 [n]");
}
