//! Broadcasting against indexing, values by hand, integer division, and tracked dimensions.

use crate::ops::{Binary, BinaryKind as K, Where};
use crate::testing::{assert_close, constant, fails, infers, info, ints, noise, run, t};
use lgp_memory::Tensor;
use proptest::prelude::*;

fn at(x: &Tensor, out: &[usize], mut i: usize) -> f32 {
    let (dims, skip) = (x.shape(), out.len() - x.shape().rank());
    let (mut index, mut stride) = (0, 1);
    for axis in (0..out.len()).rev() {
        let j = i % out[axis];
        i /= out[axis];
        if axis >= skip {
            index += if dims[axis - skip] == 1 { 0 } else { j * stride };
            stride *= dims[axis - skip];
        }
    }
    x.as_slice::<f32>().unwrap()[index]
}

proptest! {
    #[test]
    fn broadcasting_agrees_with_indexing(
        dims in prop::collection::vec((1usize..5, 0usize..3), 0..5), cut in 0usize..5, seed: u64,
    ) {
        let a: Vec<usize> = dims.iter().map(|d| if d.1 == 0 { 1 } else { d.0 }).collect();
        let b: Vec<usize> = dims.iter().map(|d| if d.1 == 1 { 1 } else { d.0 }).collect();
        let b = &b[cut.min(b.len())..];
        let (a, b) = (noise(&a, seed), noise(b, seed ^ 7));
        let got = run(&Binary::new(K::Sub), &[&a, &b]);
        let out = got.shape().to_vec();
        let n: usize = out.iter().product();
        let want: Vec<f32> = (0..n).map(|i| at(&a, &out, i) - at(&b, &out, i)).collect();
        assert_close(&got, &t(&out, &want), 0.);
        let condition = run(&Binary::new(K::Less), &[&a, &b]);
        let chosen = run(&Where, &[&condition, &a, &b]);
        let want: Vec<f32> = (0..n).map(|i| at(&a, &out, i).min(at(&b, &out, i))).collect();
        assert_close(&chosen, &t(&out, &want), 0.);
    }
}

#[test]
fn values() {
    let (a, b) = ([-7f32, 7., 2., 0.], [3f32, -3., 0.5, 2.]);
    let float = |kind, want: [f32; 4]| {
        assert_close(
            &run(&Binary::new(kind), &[&t(&[4], &a), &t(&[4], &b)]),
            &t(&[4], &want),
            1e-6,
        );
        let (a, b, want) = (a.map(f64::from), b.map(f64::from), want.map(f64::from));
        assert_close(
            &run(&Binary::new(kind), &[&t(&[4], &a), &t(&[4], &b)]),
            &t(&[4], &want),
            1e-6,
        );
    };
    float(K::Add, [-4., 4., 2.5, 2.]);
    float(K::Mul, [-21., -21., 1., 0.]);
    float(K::Div, [-7. / 3., -7. / 3., 4., 0.]);
    float(K::Min, [-7., -3., 0.5, 0.]);
    float(K::Max, [3., 7., 2., 2.]);
    float(K::Pow, [-343., 1. / 343., 2f32.sqrt(), 0.]);
    float(K::PRelu, [-21., 7., 2., 0.]);
    float(K::Mod { fmod: true }, [-1., 1., 0., 0.]);
    float(K::Mod { fmod: false }, [2., -2., 0., 0.]);
    let (a, b) = (t(&[3], &[1f32, 2., 3.]), t(&[3], &[2f32; 3]));
    for (kind, want) in [
        (K::Equal, [false, true, false]),
        (K::Less, [true, false, false]),
        (K::LessOrEqual, [true, true, false]),
        (K::Greater, [false, false, true]),
        (K::GreaterOrEqual, [false, true, true]),
    ] {
        assert_eq!(run(&Binary::new(kind), &[&a, &b]), t(&[3], &want));
    }
    let (a, b) = (t(&[4], &[false, false, true, true]), t(&[4], &[false, true, false, true]));
    for (kind, want) in [
        (K::And, [false, false, false, true]),
        (K::Or, [false, true, true, true]),
        (K::Xor, [false, true, true, false]),
        (K::Equal, [true, false, false, true]),
    ] {
        assert_eq!(run(&Binary::new(kind), &[&a, &b]), t(&[4], &want));
    }
}

#[test]
fn integers() {
    let (a, b) = (ints(&[-7, 7, i64::MIN]), ints(&[2, -2, -1]));
    for (kind, want) in [
        (K::Div, [-3, -3, i64::MIN]),
        (K::Mod { fmod: true }, [-1, 1, 0]),
        (K::Mod { fmod: false }, [1, -1, 0]),
        (K::Add, [-5, 5, i64::MAX]),
    ] {
        assert_close(&run(&Binary::new(kind), &[&a, &b]), &ints(&want), 0.);
    }
    let zero = ints(&[1, 0, 1]);
    for kind in [K::Div, K::Mod { fmod: true }, K::Mod { fmod: false }] {
        let message = fails(&Binary::new(kind), &[&a, &zero]);
        assert!(message.ends_with("an integer is divided by zero"), "{message}");
    }
    let out = run(&Binary::new(K::Pow), &[&ints(&[2, 3, -1]), &t(&[3], &[10f32, 0., 3.])]);
    assert_close(&out, &ints(&[1024, 1, -1]), 0.);
    let out = run(&Binary::new(K::Pow), &[&ints(&[4, 27, 2]), &t(&[3], &[0.5f32, 1. / 3., -1.])]);
    assert_close(&out, &ints(&[2, 3, 0]), 0.);
}

#[test]
fn bad_inputs_are_errors() {
    let f = |dims: &[usize]| noise(dims, 0);
    for (kind, a, b, message) in [
        (K::Add, f(&[2]), f(&[3]), "Add: cannot broadcast [2] and [3] to each other"),
        (K::Add, f(&[2]), ints(&[1, 2]), "Add: input 1 has dtype i64, expected f32"),
        (K::And, f(&[2]), f(&[2]), "And: dtype f32 is not supported"),
        (K::Add, t(&[1], &[true]), t(&[1], &[true]), "Add: dtype bool is not supported"),
        (K::PRelu, f(&[2, 1]), f(&[3]), "PRelu: slope of type f32 [3] does not broadcast to [2,1]"),
    ] {
        assert_eq!(fails(&Binary::new(kind), &[&a, &b]), message);
    }
}

#[test]
fn dimensions_are_tracked() {
    let four = || constant(ints(&[4]));
    for (kind, a, b, out) in [
        (K::Mul, info("dims n"), constant(ints(&[1])), "i64 [1] = [n]"),
        (K::Mul, info("dims 3"), four(), "i64 [1] = [12]"),
        (K::Add, info("dims n"), four(), "i64 [1] = [?]"),
        (K::Div, info("dims 12"), four(), "i64 [1] = [3]"),
        (K::Sub, info("dims 2"), four(), "i64 [1] = [?]"),
        (K::Mul, info("i64 1"), four(), "i64 [1]"),
    ] {
        assert_eq!(infers(&Binary::new(kind), &[a, b]), out);
    }
}
