//! Casts of numbers that small dtypes cannot hold, and which dtypes are cast to which.

use super::{Cast, CastAs};
use crate::testing::{fails, run, t};
use lgp_memory::{Complex, DType, F8E4M3FN, F8E5M2, F8E8M0, I2, I4, PowerRounding, Tensor, U4};

#[test]
fn small_integers_keep_the_low_bits() {
    let x = t(&[5], &[-9f32, -8., 7., 8., 15.]);
    let i4 = t(&[5], &[7, -8, 7, -8, -1].map(I4::wrapping));
    assert_eq!(run(&Cast { to: DType::I4 }, &[&x]), i4);
    let u4 = t(&[5], &[7, 8, 7, 8, 15].map(U4::wrapping));
    assert_eq!(run(&Cast { to: DType::U4 }, &[&x]), u4);
    let i2 = t(&[3], &[1, -2, -1].map(I2::wrapping));
    assert_eq!(run(&Cast { to: DType::I2 }, &[&t(&[3], &[-3i64, 2, 3])]), i2);
    assert_eq!(run(&Cast { to: DType::F32 }, &[&i4]), t(&[5], &[7f32, -8., 7., -8., -1.]));
    assert_eq!(run(&Cast { to: DType::U4 }, &[&i4]), u4);
    assert_eq!(run(&Cast { to: DType::I64 }, &[&i2]), t(&[3], &[1i64, -2, -1]));
}

#[test]
fn small_floats_saturate_unless_told_otherwise() {
    let x = t(&[4], &[1.06f32, 1e6, f32::NEG_INFINITY, -0.]);
    let like = |saturate| CastAs { to: None, saturate, rounding: PowerRounding::Up };
    let cases: [(Tensor, bool, [u8; 4]); 4] = [
        (t(&[], &[F8E4M3FN::default()]), true, [0x38, 0x7e, 0xfe, 0x80]),
        (t(&[], &[F8E4M3FN::default()]), false, [0x38, 0x7f, 0xff, 0x80]),
        (t(&[], &[F8E5M2::default()]), true, [0x3c, 0x7b, 0xfb, 0x80]),
        (t(&[], &[F8E5M2::default()]), false, [0x3c, 0x7c, 0xfc, 0x80]),
    ];
    for (target, saturate, want) in cases {
        let out = run(&like(saturate), &[&x, &target]);
        assert_eq!(out.as_bytes(), want, "{} {saturate}", target.dtype());
        assert_eq!(out.dtype(), target.dtype());
    }
    let wide = t(&[2], &[1 + (1i64 << 53), i64::MAX]);
    let out = run(&Cast { to: DType::F8E5M2 }, &[&wide]);
    assert_eq!(run(&Cast { to: DType::F32 }, &[&out]), t(&[2], &[57344f32; 2]));
}

#[test]
fn scales_round_as_told() {
    let x = t(&[3], &[0f32, 1.25, 1.5]);
    for (rounding, want) in [
        (PowerRounding::Up, [0, 128, 128]),
        (PowerRounding::Down, [0, 127, 127]),
        (PowerRounding::Nearest, [0, 127, 128]),
    ] {
        let op = CastAs { to: Some(DType::F8E8M0), saturate: true, rounding };
        assert_eq!(run(&op, &[&x]), t(&[3], &want.map(F8E8M0::from_bits)), "{rounding:?}");
    }
}

#[test]
fn complex_numbers_stay_what_they_are() {
    let x = t(&[1], &[Complex { re: 1f32, im: 2. }]);
    assert_eq!(run(&Cast { to: DType::Complex64 }, &[&x]), x);
    assert_eq!(fails(&Cast { to: DType::F32 }, &[&x]), "Cast is not supported for dtype complex64");
    assert_eq!(
        fails(&Cast { to: DType::Complex128 }, &[&t(&[1], &[1f32])]),
        "Cast is not supported for dtype complex128"
    );
}

#[test]
fn strings_spell_numbers() {
    let texts = |texts: &[&str]| Tensor::from_strings([texts.len()], texts).unwrap();
    let spelt = ["3.25", "1e-5", " 1E8", "NaN", "INF", "-INF", "+INF"];
    let out = run(&Cast { to: DType::F32 }, &[&texts(&spelt)]);
    let want = [3.25, 1e-5, 1e8, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY];
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(out.as_slice().unwrap()), bits(&want));
    let out = run(&Cast { to: DType::I64 }, &[&texts(&["9007199254740993", "100.5", "-7"])]);
    assert_eq!(out, t(&[3], &[9_007_199_254_740_993i64, 100, -7]));
    let out = run(&Cast { to: DType::U64 }, &[&texts(&["18446744073709551615"])]);
    assert_eq!(out, t(&[1], &[u64::MAX]));
    assert_eq!(run(&Cast { to: DType::I4 }, &[&texts(&["-8"])]), t(&[1], &[I4::wrapping(-8)]));
    let error = fails(&Cast { to: DType::F32 }, &[&texts(&["1", "one"])]);
    assert_eq!(error, "Cast: 'one' is not a number");
    let x = t(&[7], &[0.1f32, 1., -1e20, 1.5e-5, f32::NAN, f32::NEG_INFINITY, -0.]);
    let want = texts(&["0.1", "1.0", "-1e+20", "1.5e-05", "NaN", "-INF", "-0.0"]);
    assert_eq!(run(&Cast { to: DType::Str }, &[&x]), want);
    let out = run(&Cast { to: DType::Str }, &[&t(&[2], &[I2::wrapping(-2), I2::wrapping(1)])]);
    assert_eq!(out, texts(&["-2", "1"]));
}
