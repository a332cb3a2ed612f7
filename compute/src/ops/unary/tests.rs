//! Element-wise functions against values computed by hand or in f64.

use crate::Op;
use crate::device::Element;
use crate::ops::{Clip, Unary, UnaryKind as K};
use crate::testing::{assert_close, fails, run, run_all, t};
use lgp_memory::DType;

#[test]
fn values() {
    let x = [-2f32, -0.5, 0., 0.5, 3.];
    type F = fn(f64) -> f64;
    let sigmoid: F = |x| 1. / (1. + (-x).exp());
    let cases: &[(K, F)] = &[
        (K::Relu, |x| x.max(0.)),
        (K::LeakyRelu { alpha: 0.25 }, |x| if x < 0. { 0.25 * x } else { x }),
        (K::Elu { alpha: 2. }, |x| if x < 0. { 2. * x.exp_m1() } else { x }),
        (K::Celu { alpha: 2. }, |x| if x < 0. { 2. * (x / 2.).exp_m1() } else { x }),
        (K::Selu { alpha: 1.5, gamma: 2. }, |x| 2. * if x < 0. { 1.5 * x.exp_m1() } else { x }),
        (K::ThresholdedRelu { alpha: 1. }, |x| if x > 1. { x } else { 0. }),
        (K::Sigmoid, sigmoid),
        (K::HardSigmoid { alpha: 0.25, beta: 0.5 }, |x| (0.25 * x + 0.5).clamp(0., 1.)),
        (K::HardSwish, |x| x * (x / 6. + 0.5).clamp(0., 1.)),
        (K::Mish, |x| x * x.exp().ln_1p().tanh()),
        (K::Gelu { tanh: true }, |x| {
            0.5 * x * (1. + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh())
        }),
        (K::Swish { alpha: 2. }, |x| x / (1. + (-2. * x).exp())),
        (K::Linear { scale: 2., shift: -3. }, |x| 2. * x - 3.),
        (K::Softplus, |x| x.exp().ln_1p()),
        (K::Softsign, |x| x / (1. + x.abs())),
        (K::Tanh, f64::tanh),
        (K::Exp, f64::exp),
        (K::Sqrt, f64::sqrt),
        (K::Reciprocal, f64::recip),
        (K::Sin, f64::sin),
        (K::Cos, f64::cos),
        (K::Floor, f64::floor),
        (K::Ceil, f64::ceil),
        (K::Neg, |x| -x),
        (K::Abs, f64::abs),
        (K::Log, f64::ln),
    ];
    for &(kind, f) in cases {
        let want: Vec<f32> = x.iter().map(|x| f(f64::from(*x)) as f32).collect();
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let wide_want: Vec<f64> = wide.iter().map(|x| f(*x)).collect();
        let op = Unary::new(kind);
        assert_close(&run(&op, &[&t(&[5], &x)]), &t(&[5], &want), 1e-6);
        assert_close(&run(&op, &[&t(&[5], &wide)]), &t(&[5], &wide_want), 1e-12);
        let half: Vec<half::bf16> = x.iter().map(|x| half::bf16::from_f32(*x)).collect();
        let half_want: Vec<half::bf16> = want.iter().map(|x| half::bf16::from_f32(*x)).collect();
        assert_close(&run(&op, &[&t(&[5], &half)]), &t(&[5], &half_want), 1e-2);
    }
    let erf = [-0.995_322_3f32, -0.520_499_9, 0., 0.520_499_9, 0.999_977_9];
    assert_close(&run(&Unary::new(K::Erf), &[&t(&[5], &x)]), &t(&[5], &erf), 1e-6);
    let gelu = [-0.045_500_3f32, -0.154_268_8, 0., 0.345_731_2, 2.995_95];
    assert_close(
        &run(&Unary::new(K::Gelu { tanh: false }), &[&t(&[5], &x)]),
        &t(&[5], &gelu),
        1e-6,
    );
}

#[test]
fn rounding_is_to_even() {
    let x = t(&[9], &[-2.5f32, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4, 2.6, f32::INFINITY]);
    let want = t(&[9], &[-2f32, -2., -0., 0., 2., 2., 2., 3., f32::INFINITY]);
    assert_close(&run(&Unary::new(K::Round), &[&x]), &want, 0.);
}

#[test]
fn integers_bools_and_nan() {
    let op = |kind| Unary::new(kind);
    let x = t(&[3], &[-3i32, 0, 4]);
    for (kind, want) in
        [(K::Neg, [3, 0, -4]), (K::Abs, [3, 0, 4]), (K::Sign, [-1, 0, 1]), (K::Relu, [0, 0, 4])]
    {
        assert_close(&run(&op(kind), &[&x]), &t(&[3], &want), 0.);
    }
    assert_close(&run(&op(K::Sign), &[&t(&[2], &[0u8, 9])]), &t(&[2], &[0u8, 1]), 0.);
    assert_eq!(run(&op(K::Not), &[&t(&[2], &[true, false])]), t(&[2], &[false, true]));
    let nan = t(&[2], &[f32::NAN, 1.]);
    assert_eq!(run(&op(K::IsNaN), &[&nan]), t(&[2], &[true, false]));
    assert_close(&run(&op(K::Relu), &[&nan]), &nan, 0.);
    assert_eq!(fails(&op(K::Sigmoid), &[&x]), "Sigmoid: dtype i32 is not supported");
    assert_eq!(fails(&op(K::Not), &[&x]), "Not: dtype i32 is not supported");
}

#[test]
fn rows_have_their_parameters_and_dtypes() {
    let text = |kind, dtype| {
        let x = Element { dtype, name: "v" };
        Unary::new(kind).expression(&[Some(x)]).unwrap_or_default()
    };
    let slope = K::LeakyRelu { alpha: 0.5 };
    for (kind, dtype, want) in [
        (slope, DType::F16, "v < 0.0f ? F32_BITS(0x3f000000u) * v : v"),
        (K::HardSwish, DType::F32, "v * limited(v * F32_BITS(0x3e2aaaabu) + 0.5f, 0.0f, 1.0f)"),
        (K::Neg, DType::I8, "0 - v"),
        (K::Neg, DType::U8, ""),
        (K::Sign, DType::U8, "v != 0"),
        (K::Exp, DType::I32, ""),
        (K::IsNaN, DType::F32, "v != v"),
        (K::Not, DType::Bool, "!v"),
    ] {
        assert_eq!(text(kind, dtype), want, "{kind:?} of {dtype}");
    }
    assert!(text(K::Gelu { tanh: false }, DType::F32).contains("erf("));
    assert!(text(K::Gelu { tanh: true }, DType::F32).contains("tanh("));
    assert_eq!(Unary::new(slope).name(), "LeakyRelu");
    assert_eq!(Unary::new(K::IsInf { positive: true, negative: true }).name(), "IsInf");
}

#[test]
fn clips() {
    let x = t(&[3], &[-2f32, 0.5, 2.]);
    let (low, high) = (t(&[], &[-1f32]), t(&[], &[1f32]));
    assert_close(&run(&Clip::default(), &[&x, &low, &high]), &t(&[3], &[-1f32, 0.5, 1.]), 0.);
    let out = run_all(&Clip::default(), &[Some(&x), None, Some(&high)]).unwrap();
    assert_close(&out[0], &t(&[3], &[-2f32, 0.5, 1.]), 0.);
    let six = Clip { min: Some(0.), max: Some(6.) };
    assert_close(&run(&six, &[&x]), &t(&[3], &[0f32, 0.5, 2.]), 0.);
    assert_close(&run(&six, &[&t(&[3], &[-3i8, 3, 9])]), &t(&[3], &[0i8, 3, 6]), 0.);
    // The maximum wins over a larger minimum.
    assert_close(&run(&Clip::default(), &[&x, &high, &low]), &t(&[3], &[-1f32; 3]), 0.);
    let wide = Clip { min: Some(-1.), max: None };
    assert_eq!(fails(&wide, &[&t(&[1], &[1u8])]), "Clip: bound -1 does not fit u8");
    let two = t(&[2], &[0f32, 1.]);
    assert_eq!(
        fails(&Clip::default(), &[&x, &two]),
        "Clip: min has shape [2], expected one element"
    );
}
