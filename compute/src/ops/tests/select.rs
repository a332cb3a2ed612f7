//! Operators that pick, place or order elements: small numbers worked out by hand or taken from
//! the specification.

use crate::ops::*;
use crate::testing::{assert_close, fails, infers, info, ints, run, run_all, t};
use lgp_memory::DType;

#[test]
fn distinct_elements() {
    let x = t(&[6], &[2f32, 1., 1., 3., 4., 3.]);
    let all = |op: &Unique, x| run_all(op, &[Some(x)]).unwrap();
    let out = all(&Unique { axis: None, sorted: false }, &x);
    assert_eq!(out[0], t(&[4], &[2f32, 1., 3., 4.]));
    assert_eq!(out[1..], [ints(&[0, 1, 3, 4]), ints(&[0, 1, 1, 2, 3, 2]), ints(&[1, 2, 2, 1])]);
    let out = all(&Unique { axis: None, sorted: true }, &x);
    assert_eq!(out[0], t(&[4], &[1f32, 2., 3., 4.]));
    assert_eq!(out[1..], [ints(&[1, 0, 3, 4]), ints(&[1, 0, 0, 2, 3, 2]), ints(&[2, 1, 2, 1])]);
    let rows = t(&[3, 2], &[3i32, 0, 1, 0, 3, 0]);
    let out = all(&Unique { axis: Some(0), sorted: true }, &rows);
    assert_eq!(out[0], t(&[2, 2], &[1i32, 0, 3, 0]));
    assert_eq!(out[1..], [ints(&[1, 0]), ints(&[1, 0, 1]), ints(&[1, 2])]);
    let columns = t(&[2, 3], &[3i32, 1, 3, 0, 0, 0]);
    let out = all(&Unique { axis: Some(-1), sorted: true }, &columns);
    assert_eq!(out[0], t(&[2, 2], &[1i32, 3, 0, 0]));
    assert_eq!(
        infers(&Unique { axis: Some(0), sorted: true }, &[info("u8 n 3")]).split(", ").next(),
        Some("u8 [?,3]")
    );
}

#[test]
fn positions_of_what_is_not_zero() {
    let x = t(&[2, 2], &[1f32, -0., f32::NAN, 4.]);
    assert_eq!(run(&NonZero, &[&x]), t(&[2, 3], &[0i64, 1, 1, 0, 0, 1]));
    assert_eq!(run(&NonZero, &[&t(&[], &[true])]), t(&[0, 1], &[0i64; 0]));
    assert_eq!(run(&NonZero, &[&t(&[2], &[0u8; 2])]), t(&[1, 0], &[0i64; 0]));
}

#[test]
fn classes() {
    let (depth, values) = (t(&[], &[3i64]), t(&[2], &[0f32, 5.]));
    let out = run(&OneHot { axis: -1 }, &[&ints(&[0, -1, 7]), &depth, &values]);
    assert_eq!(out, t(&[3, 3], &[5f32, 0., 0., 0., 0., 5., 0., 0., 0.]));
    let out = run(&OneHot { axis: 0 }, &[&t(&[2], &[1f32, 0.]), &t(&[1], &[2f32]), &values]);
    assert_eq!(out, t(&[2, 2], &[0f32, 5., 5., 0.]));
    let op = OneHot { axis: 0 };
    assert!(fails(&op, &[&ints(&[0]), &ints(&[-2]), &values]).contains("depth is"));
    assert!(fails(&op, &[&ints(&[0]), &ints(&[2]), &ints(&[1, 2, 3])]).contains("3 values"));
}

#[test]
fn running_sums_and_products() {
    let x = t(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let op = |product, exclusive, reverse| Cumulative { product, exclusive, reverse };
    for (op, axis, want) in [
        (op(false, false, false), 1, [1i32, 3, 6, 4, 9, 15]),
        (op(false, false, false), 0, [1, 2, 3, 5, 7, 9]),
        (op(false, true, false), -1, [0, 1, 3, 0, 4, 9]),
        (op(false, false, true), 1, [6, 5, 3, 15, 11, 6]),
        (op(false, true, true), 0, [4, 5, 6, 0, 0, 0]),
        (op(true, false, false), 1, [1, 2, 6, 4, 20, 120]),
        (op(true, true, true), 1, [6, 3, 1, 30, 6, 1]),
    ] {
        assert_eq!(run(&op, &[&x, &t(&[], &[axis])]), t(&[2, 3], &want), "{op:?} {axis}");
    }
    let op = op(false, false, false);
    assert!(fails(&op, &[&x, &t(&[], &[2i64])]).contains("axis 2 is outside"));
}

#[test]
fn triangles_and_diagonals() {
    let x = t(&[1, 2, 3], &[1u8, 2, 3, 4, 5, 6]);
    for (upper, k, want) in [
        (true, 0, [1u8, 2, 3, 0, 5, 6]),
        (false, 0, [1, 0, 0, 4, 5, 0]),
        (true, 1, [0, 2, 3, 0, 0, 6]),
        (false, -1, [0, 0, 0, 4, 0, 0]),
        (true, i64::MAX, [0; 6]),
        (false, i64::MAX, [1, 2, 3, 4, 5, 6]),
        (true, i64::MIN, [1, 2, 3, 4, 5, 6]),
    ] {
        assert_eq!(
            run(&Trilu { upper }, &[&x, &t(&[], &[k])]),
            t(&[1, 2, 3], &want),
            "{upper} {k}"
        );
    }
    assert_eq!(run(&Trilu { upper: false }, &[&x]), t(&[1, 2, 3], &[1u8, 0, 0, 4, 5, 0]));
    assert!(fails(&Trilu { upper: true }, &[&ints(&[1])]).contains("rank is 1"));
    let eye = EyeLike { dtype: Some(DType::F32), k: 1 };
    assert_eq!(run(&eye, &[&t(&[2, 3], &[0i32; 6])]), t(&[2, 3], &[0f32, 1., 0., 0., 0., 1.]));
    let eye = EyeLike { dtype: None, k: -1 };
    assert_eq!(run(&eye, &[&t(&[2, 2], &[7i64; 4])]), t(&[2, 2], &[0i64, 0, 1, 0]));
}

#[test]
fn selected_slices() {
    let x = t(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let bools = |b: &[bool]| t(&[b.len()], b);
    let rows = Compress { axis: Some(0) };
    assert_eq!(run(&rows, &[&x, &bools(&[false, true, true])]), t(&[2, 2], &[3i32, 4, 5, 6]));
    let columns = Compress { axis: Some(-1) };
    assert_eq!(run(&columns, &[&x, &bools(&[false, true])]), t(&[3, 1], &[2i32, 4, 6]));
    let all = Compress { axis: None };
    assert_eq!(run(&all, &[&x, &bools(&[true, false, true])]), t(&[2], &[1i32, 3]));
    assert!(fails(&columns, &[&x, &bools(&[false, false, true])]).contains("element 2"));
}

#[test]
fn turned_sequences() {
    let x = t(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
    let op = ReverseSequence { time_first: true };
    assert_eq!(run(&op, &[&x, &ints(&[3, 1])]), t(&[3, 2], &[5i32, 2, 3, 4, 1, 6]));
    let op = ReverseSequence { time_first: false };
    assert_eq!(run(&op, &[&x, &ints(&[2, 0, 1])]), t(&[3, 2], &[2i32, 1, 3, 4, 5, 6]));
    assert!(fails(&op, &[&x, &ints(&[3, 0, 1])]).contains("outside 0 to 2"));
    assert!(fails(&op, &[&x, &ints(&[0, 1])]).contains("is 2, expected 3"));
}

#[test]
fn bits() {
    let (a, b) = (t(&[3], &[12u8, 10, 255]), t(&[1], &[10u8]));
    for (kind, want) in [
        (BitwiseKind::And, [8u8, 10, 10]),
        (BitwiseKind::Or, [14, 10, 255]),
        (BitwiseKind::Xor, [6, 0, 245]),
        (BitwiseKind::ShiftLeft, [0, 0, 0]),
        (BitwiseKind::ShiftRight, [0, 0, 0]),
    ] {
        assert_eq!(run(&Bitwise { kind }, &[&a, &b]), t(&[3], &want), "{kind:?}");
    }
    let one = t(&[], &[1u8]);
    let shift = |kind| run(&Bitwise { kind }, &[&a, &one]);
    assert_eq!(shift(BitwiseKind::ShiftLeft), t(&[3], &[24u8, 20, 254]));
    assert_eq!(shift(BitwiseKind::ShiftRight), t(&[3], &[6u8, 5, 127]));
    assert_eq!(run(&BitwiseNot, &[&t(&[2], &[0i16, 5])]), t(&[2], &[-1i16, -6]));
    let op = Bitwise { kind: BitwiseKind::ShiftLeft };
    assert!(fails(&op, &[&ints(&[1]), &ints(&[1])]).contains("expected an unsigned integer"));
    let cast = BitCast { to: DType::I32 };
    assert_eq!(run(&cast, &[&t(&[1], &[1f32])]), t(&[1], &[0x3f80_0000i32]));
    assert!(fails(&cast, &[&ints(&[1])]).contains("i64 and i32 differ in size"));
    assert!(fails(&BitCast { to: DType::Bool }, &[&t(&[1], &[2u8])]).contains("0 and 1"));
}

#[test]
fn largest_elements_and_determinants() {
    let x = t(&[2, 3], &[1f32, 3., 3., 2., 0., 1.]);
    let hardmax = |axis, flatten| run(&Hardmax { axis, flatten }, &[&x]);
    assert_eq!(hardmax(-1, false), t(&[2, 3], &[0f32, 1., 0., 1., 0., 0.]));
    assert_eq!(hardmax(0, false), t(&[2, 3], &[0f32, 1., 1., 1., 0., 0.]));
    assert_eq!(hardmax(0, true), t(&[2, 3], &[0f32, 1., 0., 0., 0., 0.]));
    let x = t(&[2, 2, 2], &[1f32, 2., 3., 4., 0., 2., 3., 1.]);
    assert_close(&run(&Det, &[&x]), &t(&[2], &[-2f32, -6.]), 1e-6);
    assert_close(&run(&Det, &[&t(&[0, 0], &[0f32; 0])]), &t(&[], &[1f32]), 0.);
    assert!(fails(&Det, &[&t(&[1, 2], &[1f32, 2.])]).contains("is 2, expected 1"));
    let (a, b) = (t(&[2, 1], &[1f32, 3.]), t(&[2], &[5f32, 7.]));
    assert_close(&run(&Mean, &[&a, &b]), &t(&[2, 2], &[3f32, 4., 4., 5.]), 0.);
}

#[test]
fn shapes_that_stand_at_an_axis() {
    let (a, b) = (t(&[2, 3, 4], &[0f32; 24]), t(&[3], &[1f32, 2., 3.]));
    assert_eq!(run(&Align { axis: 1 }, &[&b, &a]).shape().dims(), [3, 1]);
    assert_eq!(run(&Align { axis: -1 }, &[&b, &a]).shape().dims(), [3]);
    assert!(fails(&Align { axis: 4 }, &[&b, &a]).contains("axis 4 is outside"));
}
