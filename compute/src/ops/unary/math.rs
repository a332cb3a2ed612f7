//! Elementary functions in plain arithmetic, so that loops over them vectorise.

// The constants keep the digits of their sources; what an f32 cannot hold is rounded.
#![allow(clippy::excessive_precision)]

use crate::matrix::Real;

/// Functions with a vectorising form in f32 and the standard library's in f64.
pub(crate) trait Exp: Real {
    fn exp_(self) -> Self;
    fn tanh_(self) -> Self;
    fn erf_(self) -> Self;
    /// `1 / (1 + exp(-x))`.
    fn sigmoid_(self) -> Self;
    /// A literal.
    fn lit(value: f64) -> Self;
}

impl Exp for f32 {
    /// Within 2 units in the last place; overflows to infinity, underflows through denormals.
    #[inline(always)]
    fn exp_(self) -> Self {
        /// 1.5 · 2^23: adding it rounds to an integer that then stands in the low bits.
        const ROUND: f32 = 12_582_912.;
        const LN2_HIGH: f32 = 0.693_359_375;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        let x = if self > 89. { 89. } else { self };
        let x = if x < -104. { -104. } else { x };
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = x - n * LN2_HIGH - n * LN2_LOW;
        // Cephes' expf polynomial on [-ln 2 / 2, ln 2 / 2].
        let p = 1.987_569_15e-4 * r + 1.398_199_95e-3;
        let p = p * r + 8.333_451_9e-3;
        let p = p * r + 4.166_579_6e-2;
        let p = p * r + 1.666_666_55e-1;
        let p = p * r + 5.000_000_12e-1;
        let y = p * (r * r) + r + 1.;
        // 2^n in two factors, because n reaches beyond both ends of the exponent.
        let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
        let half = n >> 1;
        let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
        y * power(half) * power(n.wrapping_sub(half))
    }

    #[inline(always)]
    fn tanh_(self) -> Self {
        let z = self * self;
        // Cephes' tanhf polynomial, for |x| < 0.625, where 1 - 2 / (…) would cancel.
        let p = -5.704_988_72e-3 * z + 2.063_908_87e-2;
        let p = p * z - 5.373_971_55e-2;
        let p = p * z + 1.333_144_19e-1;
        let p = p * z - 3.333_328_20e-1;
        let small = p * z * self + self;
        let large = 1. - 2. / ((2. * self.abs()).exp_() + 1.);
        let large = if self < 0. { -large } else { large };
        if self.abs() < 0.625 { small } else { large }
    }

    /// A quotient of polynomials, the best of degrees 5 and 5 in x² by relative error up to 3.92,
    /// from where on the function is 1 in f32. Within 3.5e-7 of the value.
    #[inline(always)]
    fn erf_(self) -> Self {
        const END: f32 = 3.92;
        let x = if self > END { END } else { self };
        let x = if x < -END { -END } else { x };
        let z = x * x;
        let p = 2.050_082_2e-6 * z + 2.848_837_5e-4;
        let p = p * z + 3.765_655_7e-3;
        let p = p * z + 5.274_884_4e-2;
        let p = p * z + 1.904_073_5e-1;
        let p = p * z + 1.128_379_11;
        let q = 3.809_171_5e-5 * z + 1.162_545_2e-3;
        let q = q * z + 1.496_929_4e-2;
        let q = q * z + 1.141_094_8e-1;
        let q = q * z + 5.020_768_6e-1;
        let q = q * z + 1.;
        let y = x * p / q;
        let y = if y > 1. { 1. } else { y };
        if y < -1. { -1. } else { y }
    }

    /// Without a division, which takes as long as all else: the difference of exponents is a first
    /// guess of the inverse within 5 %, and each of Newton's three steps squares the error.
    #[inline(always)]
    fn sigmoid_(self) -> Self {
        /// Below it the value is no normal number: 0.
        const LEAST: f32 = -87.;
        let x = if self < LEAST { LEAST } else { self };
        let d = 1. + (-x).exp_();
        let inverse = f32::from_bits(0x7ef3_11c3u32.wrapping_sub(d.to_bits()));
        let inverse = inverse * (2. - d * inverse);
        let inverse = inverse * (2. - d * inverse);
        // The last one as a correction, which rounds least.
        let inverse = inverse + inverse * (1. - d * inverse);
        if self < LEAST { 0. } else { inverse }
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
    fn tanh_(self) -> Self {
        self.tanh()
    }

    /// By its Taylor series inside 3 and the continued fraction of its complement outside.
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
    // Zero keeps the sign of what it was rounded from; NaN and infinities pass through.
    if rounded == T::zero() { rounded.copysign(x) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_functions_agree_with_f64() {
        let mut worst = [0f64; 4];
        for i in -110_000..90_000 {
            let x = f32::lit(f64::from(i) * 1e-3);
            let wide = f64::from(x);
            let error = |got: f32, want: f64| {
                // Relative to the value, down to the smallest normal number.
                (f64::from(got) - want).abs() / want.abs().max(f64::from(f32::MIN_POSITIVE))
            };
            if i < 88_000 {
                worst[0] = worst[0].max(error(x.exp_(), wide.exp()));
            }
            worst[1] = worst[1].max(error(x.tanh_(), wide.tanh()));
            worst[2] = worst[2].max(error(x.erf_(), wide.erf_()));
            if i > -87_000 {
                worst[3] = worst[3].max(error(x.sigmoid_(), 1. / (1. + (-wide).exp())));
            }
        }
        assert!(worst.iter().all(|worst| *worst < 5e-7), "{worst:?}");
    }

    #[test]
    fn f32_functions_at_the_edges() {
        let inf = f32::INFINITY;
        assert_eq!((0f32.exp_(), inf.exp_(), (-inf).exp_()), (1., inf, 0.));
        assert_eq!((100f32.exp_(), (-200f32).exp_()), (inf, 0.));
        assert_eq!((inf.tanh_(), (-inf).tanh_(), 0f32.tanh_()), (1., -1., 0.));
        assert_eq!((inf.erf_(), (-inf).erf_(), 0f32.erf_()), (1., -1., 0.));
        assert_eq!((inf.sigmoid_(), (-inf).sigmoid_(), 0f32.sigmoid_()), (1., 0., 0.5));
        assert!(f32::NAN.sigmoid_().is_nan());
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
