//! Elementary functions in plain arithmetic, so that loops that call them vectorise.

// The constants have the digits of their sources; digits beyond an f32 are rounded.
#![allow(clippy::excessive_precision)]

use crate::matrix::Real;

/// Functions that vectorise in f32, and are the standard library's in f64.
pub(crate) trait Exp: Real {
    fn exp_(self) -> Self;
    /// The exponential of a number of at most 0, as softmax sums it; see [`weight`].
    fn weight_<const FUSED: bool>(self) -> Self;
    fn tanh_(self) -> Self;
    fn erf_(self) -> Self;
    /// `1 / (1 + exp(-x))`.
    fn sigmoid_(self) -> Self;
    /// A literal.
    fn lit(value: f64) -> Self;
}

/// `a · b + c`, rounded once with `FUSED`. That is one instruction where the surrounding function
/// enables the instruction, and a slow call elsewhere.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// A polynomial, the coefficient of the highest power first.
#[inline(always)]
fn polynomial<const FUSED: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for c in &coefficients[1..] {
        sum = multiply_add::<FUSED>(sum, x, *c);
    }
    sum
}

/// 1.5 · 2^23: the sum with a number has the number, rounded to an integer, in the low bits.
const ROUND: f32 = 12_582_912.;

/// `(y, n)` so that `exp(x)` is `y · 2^n`, with n as `n + ROUND`; x is at most 104 from 0.
#[inline(always)]
fn exp_parts<const FUSED: bool>(x: f32) -> (f32, f32) {
    const LN2_HIGH: f32 = 0.693_359_375;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = multiply_add::<FUSED>(n, -LN2_LOW, multiply_add::<FUSED>(n, -LN2_HIGH, x));
    // The polynomial of degree 6 that begins with 1 + r and has the least relative error on
    // [-ln 2 / 2, ln 2 / 2], 3.1e-9.
    let y = polynomial::<FUSED, 7>(
        r,
        [1.381_459_86e-3, 8.368_716_98e-3, 4.166_838_81e-2, 0.166_665_206, 0.499_999_934, 1., 1.],
    );
    (y, shifted)
}

/// `exp(x)` for x from -87 to 88, where 2^n is a normal number.
#[inline(always)]
fn exp_normal<const FUSED: bool>(x: f32) -> f32 {
    let (y, shifted) = exp_parts::<FUSED>(x);
    // A product, so that NaN stays NaN; a sum of exponents can make a number of it.
    y * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()))
}

/// The exponential function within 2 units in the last place; overflows to infinity, underflows
/// through denormals.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    let x = if x > 89. { 89. } else { x };
    let x = if x < -104. { -104. } else { x };
    let (y, shifted) = exp_parts::<FUSED>(x);
    // 2^n is a product of two factors, because n exceeds the exponent's range at both ends.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    y * power(half) * power(n.wrapping_sub(half))
}

/// `exp(x)` for x of at most 0, and 0 below -80. So small a weight adds nothing to a sum of at least 1.
/// Its products with values would be subnormal numbers, which many processors multiply far more
/// slowly than others.
#[inline(always)]
pub(crate) fn weight<const FUSED: bool>(x: f32) -> f32 {
    const LEAST: f32 = -80.;
    let weight = exp_normal::<FUSED>(if x < LEAST { LEAST } else { x });
    if x < LEAST { 0. } else { weight }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let z = x * x;
    // Cephes' tanhf polynomial, for |x| < 0.625, where 1 - 2 / (…) would cancel.
    let p = polynomial::<FUSED, 5>(
        z,
        [-5.704_988_72e-3, 2.063_908_87e-2, -5.373_971_55e-2, 1.333_144_19e-1, -3.333_328_20e-1],
    );
    let small = multiply_add::<FUSED>(p * z, x, x);
    // From 10 on the function is 1.
    let size = if x.abs() > 10. { 10. } else { x.abs() };
    let large = 1. - 2. / (exp_normal::<FUSED>(2. * size) + 1.);
    let large = if x < 0. { -large } else { large };
    if x.abs() < 0.625 { small } else { large }
}

/// A quotient of polynomials of degrees 5 and 5 in x² with the least relative error up to 3.92;
/// from there on the function is 1 in f32. Within 3.5e-7 of the value.
#[inline(always)]
pub(crate) fn erf<const FUSED: bool>(x: f32) -> f32 {
    const END: f32 = 3.92;
    let x = if x > END { END } else { x };
    let x = if x < -END { -END } else { x };
    let z = x * x;
    let p = polynomial::<FUSED, 6>(
        z,
        [
            2.050_082_2e-6,
            2.848_837_5e-4,
            3.765_655_7e-3,
            5.274_884_4e-2,
            1.904_073_5e-1,
            1.128_379_11,
        ],
    );
    let q = polynomial::<FUSED, 6>(
        z,
        [3.809_171_5e-5, 1.162_545_2e-3, 1.496_929_4e-2, 1.141_094_8e-1, 5.020_768_6e-1, 1.],
    );
    let y = x * p / q;
    let y = if y > 1. { 1. } else { y };
    if y < -1. { -1. } else { y }
}

/// `1 / (1 + exp(-x))` as `exp(x) / (1 + exp(x))`, whose relative error is small on both sides.
#[inline(always)]
pub(crate) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    /// Below this number the value is not a normal number, and the result is 0.
    const LEAST: f32 = -87.;
    let limited = if x < LEAST { LEAST } else { x };
    let limited = if limited > -LEAST { -LEAST } else { limited };
    let e = exp_normal::<FUSED>(limited);
    if x < LEAST { 0. } else { e / (1. + e) }
}

impl Exp for f32 {
    #[inline(always)]
    fn exp_(self) -> Self {
        exp::<false>(self)
    }

    #[inline(always)]
    fn weight_<const FUSED: bool>(self) -> Self {
        weight::<FUSED>(self)
    }

    #[inline(always)]
    fn tanh_(self) -> Self {
        tanh::<false>(self)
    }

    #[inline(always)]
    fn erf_(self) -> Self {
        erf::<false>(self)
    }

    #[inline(always)]
    fn sigmoid_(self) -> Self {
        sigmoid::<false>(self)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "literals round to the nearest f32")]
    fn lit(value: f64) -> Self {
        value as Self
    }
}

impl Exp for f64 {
    #[inline(always)]
    fn exp_(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn weight_<const FUSED: bool>(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn tanh_(self) -> Self {
        self.tanh()
    }

    /// The Taylor series for |x| below 3, and the continued fraction of the complement elsewhere.
    fn erf_(self) -> Self {
        let x = self.abs();
        if x.is_nan() {
            return self;
        }
        let magnitude = if x < 3. {
            let (mut term, mut sum) = (x, x);
            for n in 1..100 {
                let n = Self::from(n);
                term *= -x * x / n;
                sum += term / (2. * n + 1.);
                if term.abs() < 1e-18 * sum.abs() {
                    break;
                }
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..=60).rev().fold(x, |f, n| x + Self::from(n) / 2. / f);
            1. - (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
        };
        magnitude.copysign(self)
    }

    #[inline(always)]
    fn sigmoid_(self) -> Self {
        1. / (1. + (-self).exp())
    }

    #[inline(always)]
    fn lit(value: f64) -> Self {
        value
    }
}

/// Rounds to the nearest integer, halves to the even one.
#[inline(always)]
pub(super) fn round_half_even<T: Exp>(x: T) -> T {
    let down = x.floor();
    let rest = x - down;
    let half = T::lit(0.5);
    let odd = down - (down * half).floor() * T::lit(2.) != T::zero();
    let up = rest > half || (rest == half && odd);
    let rounded = if up { down + T::one() } else { down };
    // A result of zero keeps the sign of the number; NaN and infinities pass through.
    if rounded == T::zero() { rounded.copysign(x) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_functions_agree_with_f64() {
        agrees::<false>();
        agrees::<true>();
    }

    fn agrees<const FUSED: bool>() {
        let mut worst = [0f64; 5];
        for i in -110_000..90_000 {
            let x = f32::lit(f64::from(i) * 1e-3);
            let wide = f64::from(x);
            let error = |got: f32, want: f64| {
                // Relative to the value, down to the smallest normal number.
                (f64::from(got) - want).abs() / want.abs().max(f64::from(f32::MIN_POSITIVE))
            };
            if i < 88_000 {
                worst[0] = worst[0].max(error(exp::<FUSED>(x), wide.exp()));
            }
            if (-80_000..=0).contains(&i) {
                worst[4] = worst[4].max(error(weight::<FUSED>(x), wide.exp()));
            }
            worst[1] = worst[1].max(error(tanh::<FUSED>(x), wide.tanh()));
            worst[2] = worst[2].max(error(erf::<FUSED>(x), wide.erf_()));
            if i > -87_000 {
                worst[3] = worst[3].max(error(sigmoid::<FUSED>(x), 1. / (1. + (-wide).exp())));
            }
        }
        assert!(worst.iter().all(|worst| *worst < 5e-7), "fused {FUSED}: {worst:?}");
    }

    #[test]
    fn f32_functions_at_the_edges() {
        let inf = f32::INFINITY;
        assert_eq!((0f32.exp_(), inf.exp_(), (-inf).exp_()), (1., inf, 0.));
        assert_eq!((100f32.exp_(), (-200f32).exp_()), (inf, 0.));
        assert_eq!((inf.tanh_(), (-inf).tanh_(), 0f32.tanh_()), (1., -1., 0.));
        assert_eq!((inf.erf_(), (-inf).erf_(), 0f32.erf_()), (1., -1., 0.));
        assert_eq!((inf.sigmoid_(), (-inf).sigmoid_(), 0f32.sigmoid_()), (1., 0., 0.5));
        assert_eq!([inf, -inf, 0.].map(sigmoid::<true>), [1., 0., 0.5]);
        assert_eq!([inf, -inf, 0.].map(exp::<true>), [inf, 0., 1.]);
        assert!(f32::NAN.sigmoid_().is_nan() && sigmoid::<true>(f32::NAN).is_nan());
        assert_eq!([0., -80.01, -inf].map(weight::<false>), [1., 0., 0.]);
        assert!(weight::<false>(f32::NAN).is_nan() && weight::<true>(f32::NAN).is_nan());
        let rare = f32::from_bits(0x7fc0_0001);
        let near = [sigmoid::<true>(rare), weight::<true>(rare), tanh::<true>(rare), rare.exp_()];
        assert!(near.iter().all(|it| it.is_nan()), "{near:?}");
        assert!(f32::NAN.exp_().is_nan() && f32::NAN.tanh_().is_nan() && f32::NAN.erf_().is_nan());
    }

    #[test]
    fn f64_erf_agrees_with_tables() {
        for (x, want) in [
            (0.5, 0.520_499_877_813_046_5),
            (1., 0.842_700_792_949_714_9),
            (2., 0.995_322_265_018_952_7),
            (2.9, 0.999_958_902_121_900_6),
            (3.5, 0.999_999_256_901_627_7),
            (-1., -0.842_700_792_949_714_9),
        ] {
            assert!((f64::erf_(x) - want).abs() < 1e-13, "{x}: {} {want}", f64::erf_(x));
        }
    }
}
