//! Floats of eight bits and fewer, one per byte. Widening conversions are exact, and narrowing ones
//! round once. The formats are those of the OCP 8-bit and microscaling specifications, and the
//! `FNUZ` ones of Graphcore, AMD and Qualcomm (arXiv 2206.02915).

use bytemuck::{CheckedBitPattern, NoUninit};
use bytemuck::{Pod, Zeroable};

/// The parameters of a sign-exponent-mantissa format.
struct Format {
    mantissa: u32,
    bias: i32,
    /// Exponent and mantissa bits of the largest finite number.
    largest: u8,
    sign: u8,
    infinity: Option<u8>,
    /// The code for NaN; `None` if -0 stands for NaN.
    nan: Option<u8>,
    /// Whether the format has -0, and with it a sign on NaN.
    negative_zero: bool,
}

const F4E2M1_FORMAT: Format = Format {
    mantissa: 1,
    bias: 1,
    largest: 0x7,
    sign: 0x8,
    infinity: None,
    nan: None,
    negative_zero: true,
};
const F8E4M3FN_FORMAT: Format = Format {
    mantissa: 3,
    bias: 7,
    largest: 0x7e,
    sign: 0x80,
    infinity: None,
    nan: Some(0x7f),
    negative_zero: true,
};
const F8E4M3FNUZ_FORMAT: Format = Format {
    mantissa: 3,
    bias: 8,
    largest: 0x7f,
    sign: 0x80,
    infinity: None,
    nan: Some(0x80),
    negative_zero: false,
};
const F8E5M2_FORMAT: Format = Format {
    mantissa: 2,
    bias: 15,
    largest: 0x7b,
    sign: 0x80,
    infinity: Some(0x7c),
    nan: Some(0x7e),
    negative_zero: true,
};
const F8E5M2FNUZ_FORMAT: Format = Format {
    mantissa: 2,
    bias: 16,
    largest: 0x7f,
    sign: 0x80,
    infinity: None,
    nan: Some(0x80),
    negative_zero: false,
};

impl Format {
    fn decode(&self, code: u8) -> f32 {
        let magnitude = code & (self.sign - 1);
        let negative = code & self.sign != 0;
        let value = if !self.negative_zero && self.nan == Some(code) {
            f32::NAN
        } else if magnitude <= self.largest {
            let fraction = f32::from(magnitude & ((1 << self.mantissa) - 1));
            let exponent = i32::from(magnitude >> self.mantissa);
            let one = f32::from(1u8 << self.mantissa);
            let (fraction, exponent) =
                if exponent == 0 { (fraction, 1) } else { (fraction + one, exponent) };
            fraction / one * 2f32.powi(exponent - self.bias)
        } else if self.infinity == Some(magnitude) {
            f32::INFINITY
        } else {
            f32::NAN
        };
        if negative { -value } else { value }
    }

    /// Rounds half to even.
    fn encode(&self, x: f64, saturate: bool) -> u8 {
        let sign = if x.is_sign_negative() { self.sign } else { 0 };
        let signed = |code: u8| if self.negative_zero { code | sign } else { code };
        if x.is_nan() {
            return self.nan.map_or(self.sign, signed);
        }
        let magnitude = self.round(x.abs());
        match magnitude {
            Some(0) => signed(0),
            Some(code) => code | sign,
            None if saturate => self.largest | sign,
            None => match (self.infinity, self.nan) {
                (Some(infinity), _) => infinity | sign,
                (None, Some(nan)) => signed(nan),
                (None, None) => self.largest | sign,
            },
        }
    }

    /// The code of the number nearest to a non-negative `x`; `None` if `x` is too large.
    fn round(&self, x: f64) -> Option<u8> {
        let least = 1 - self.bias;
        if x >= 2f64.powi(i32::from(self.largest >> self.mantissa) + 1 - self.bias) {
            return None;
        }
        let exponent = exponent(x).max(least);
        // Scaling by a power of two is exact, so only `round_ties_even` rounds.
        let places = i32::try_from(self.mantissa).unwrap_or(0);
        let units = (x * 2f64.powi(places - exponent)).round_ties_even();
        // Both terms are small: a few units, and an exponent below 32.
        #[allow(clippy::cast_possible_truncation, reason = "a handful of units")]
        let code = units as i32 + ((exponent - least) << self.mantissa);
        u8::try_from(code).ok().filter(|&code| code <= self.largest)
    }
}

/// The exponent of a normal number's leading bit; at most -1023 for the rest.
fn exponent(x: f64) -> i32 {
    i32::try_from((x.to_bits() >> 52) & 0x7ff).unwrap_or(0) - 1023
}

macro_rules! small_float {
    ($($(#[$doc:meta])* $name:ident: $format:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The nearest number, ties to even. Too large numbers and infinity become the largest
            /// number when `saturate`, and otherwise infinity or, in formats without one, NaN.
            #[must_use]
            pub fn from_f64(x: f64, saturate: bool) -> Self {
                Self($format.encode(x, saturate))
            }

            /// Like [`Self::from_f64`]; the conversion from f32 to f64 is exact.
            #[must_use]
            pub fn from_f32(x: f32, saturate: bool) -> Self {
                Self::from_f64(x.into(), saturate)
            }

            /// The same number.
            #[must_use]
            pub fn to_f32(self) -> f32 {
                $format.decode(self.0)
            }
        }
    )* };
}

small_float!(
    /// Eight bits: sign, 4 of exponent, 3 of mantissa; NaN, -0, no infinity; up to 448.
    F8E4M3FN: F8E4M3FN_FORMAT,
    /// Eight bits: sign, 4 of exponent, 3 of mantissa; one NaN, no -0, no infinity; up to 240.
    F8E4M3FNUZ: F8E4M3FNUZ_FORMAT,
    /// Eight bits: sign, 5 of exponent, 2 of mantissa, as in IEEE formats; up to 57344.
    F8E5M2: F8E5M2_FORMAT,
    /// Eight bits: sign, 5 of exponent, 2 of mantissa; one NaN, no -0, no infinity; up to 57344.
    F8E5M2FNUZ: F8E5M2FNUZ_FORMAT,
    /// Four bits in a byte: sign, 2 of exponent, 1 of mantissa. There is no NaN, which becomes -0,
    /// and no infinity: larger numbers become 6.
    F4E2M1: F4E2M1_FORMAT,
);

/// How a number between two powers of two is rounded to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PowerRounding {
    /// Away from zero.
    #[default]
    Up,
    /// Towards zero.
    Down,
    /// To the nearer one, ties up.
    Nearest,
}

/// Eight bits of exponent only: the powers of two from -127 to 127, and NaN. Serves as a block
/// scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct F8E8M0(u8);

impl F8E8M0 {
    const NAN: Self = Self(0xff);
    const LARGEST: Self = Self(0xfe);

    /// A power of two next to `x`. Numbers out of range and zero become the nearest end when
    /// `saturate`, and NaN otherwise. Negative numbers become NaN.
    #[must_use]
    pub fn from_f64(x: f64, saturate: bool, rounding: PowerRounding) -> Self {
        if x.is_nan() || x < 0. {
            return Self::NAN;
        }
        if x < 2f64.powi(-127) {
            return if saturate { Self(0) } else { Self::NAN };
        }
        let fraction = x.to_bits() << 12;
        let up = match rounding {
            PowerRounding::Up => fraction != 0,
            PowerRounding::Down => false,
            PowerRounding::Nearest => fraction >= 1 << 63,
        };
        let code = exponent(x).saturating_add(127 + i32::from(up));
        match u8::try_from(code) {
            Ok(code) if code < 0xff => Self(code),
            _ if saturate => Self::LARGEST,
            _ => Self::NAN,
        }
    }

    /// Like [`Self::from_f64`]; the conversion from f32 to f64 is exact.
    #[must_use]
    pub fn from_f32(x: f32, saturate: bool, rounding: PowerRounding) -> Self {
        Self::from_f64(x.into(), saturate, rounding)
    }

    /// The same number.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        if self == Self::NAN { f32::NAN } else { 2f32.powi(i32::from(self.0) - 127) }
    }
}

/// A complex number, real part first.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

/// A complex number of two f32.
pub type Complex64 = Complex<f32>;
/// A complex number of two f64.
pub type Complex128 = Complex<f64>;

// SAFETY: two fields of one `Pod` type in C's order have no padding, and every bit pattern is
// valid.
unsafe impl<T: Zeroable> Zeroable for Complex<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Pod for Complex<T> {}

macro_rules! bits {
    ($($name:ident),*) => { $(
        impl $name {
            /// The number with these bits.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Its bits.
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }
        }

        // SAFETY: one byte, of which every value is a number of the type or a NaN.
        unsafe impl Zeroable for $name {}
        // SAFETY: as above; transparent, so without padding.
        unsafe impl Pod for $name {}
    )* };
}
bits!(F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0);

impl F4E2M1 {
    /// The number with the lower four of these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0xf)
    }

    /// Its bits, below 16.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }
}

// SAFETY: one byte, transparent: no padding, no uninitialised part, no interior mutability.
unsafe impl NoUninit for F4E2M1 {}
// SAFETY: zero is a number of the type.
unsafe impl Zeroable for F4E2M1 {}
// SAFETY: `Bits` has the size and alignment of the type, and only its codes are accepted.
unsafe impl CheckedBitPattern for F4E2M1 {
    type Bits = u8;
    #[inline]
    fn is_valid_bit_pattern(bits: &u8) -> bool {
        *bits < 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code of a format with its value, sorted by value.
    fn ordered(format: &Format) -> Vec<(u8, f64)> {
        let last = format.sign | (format.sign - 1);
        let mut all: Vec<(u8, f64)> = (0..=last)
            .map(|c| (c, f64::from(format.decode(c))))
            .filter(|(c, x)| x.is_finite() && (*c != format.sign))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    }

    const FORMATS: [&Format; 5] =
        [&F4E2M1_FORMAT, &F8E4M3FN_FORMAT, &F8E4M3FNUZ_FORMAT, &F8E5M2_FORMAT, &F8E5M2FNUZ_FORMAT];

    /// Every number is preserved, and a number between two neighbours goes to the nearer one, ties
    /// to the even code.
    #[test]
    fn rounding_is_to_the_nearest_and_even() {
        for format in FORMATS {
            let all = ordered(format);
            for pair in all.windows(2) {
                let [(low, a), (high, b)] = *pair else { panic!("two") };
                assert!(a < b);
                let middle = f64::midpoint(a, b);
                let (under, over) = (middle.next_down(), middle.next_up());
                let even = if low & 1 == 0 { low } else { high };
                for (x, code) in [(a, low), (b, high), (under, low), (over, high), (middle, even)] {
                    let got = format.encode(x, true);
                    let want = if code == 0 && x < 0. && format.negative_zero {
                        format.sign
                    } else {
                        code
                    };
                    assert_eq!(got, want, "{x} between {a} and {b}");
                    assert_eq!(format.encode(x, false), want, "{x}");
                }
            }
        }
    }

    #[test]
    fn the_ends_are_where_the_specifications_put_them() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        // Largest, smallest, saturated and other infinities, NaN and -0 as bits.
        let cases = [
            (&F4E2M1_FORMAT, 6., 0.5, [0x7, 0xf, 0x7, 0xf, 0x8, 0x8]),
            (&F8E4M3FN_FORMAT, 448., 2f64.powi(-9), [0x7e, 0xfe, 0x7f, 0xff, 0x7f, 0x80]),
            (&F8E4M3FNUZ_FORMAT, 240., 2f64.powi(-10), [0x7f, 0xff, 0x80, 0x80, 0x80, 0]),
            (&F8E5M2_FORMAT, 57344., 2f64.powi(-16), [0x7b, 0xfb, 0x7c, 0xfc, 0x7e, 0x80]),
            (&F8E5M2FNUZ_FORMAT, 57344., 2f64.powi(-17), [0x7f, 0xff, 0x80, 0x80, 0x80, 0]),
        ];
        for (format, largest, smallest, want) in cases {
            let all = ordered(format);
            assert_eq!(all.last().map(|x| x.1), Some(largest));
            assert_eq!(all.iter().map(|x| x.1).find(|x| *x > 0.), Some(smallest));
            let got = [
                format.encode(inf, true),
                format.encode(-inf, true),
                format.encode(inf, false),
                format.encode(-inf, false),
                format.encode(nan, true),
                format.encode(-0., true),
            ];
            assert_eq!(got, want, "{largest}");
            assert_eq!(format.encode(1e300, true), format.largest);
            assert_eq!(format.encode(f64::MIN_POSITIVE / 4., true), 0);
        }
        assert!(F8E5M2::from_bits(0x7c).to_f32().is_infinite());
        for code in [0x7d, 0x7e, 0x7f, 0xff] {
            assert!(F8E5M2::from_bits(code).to_f32().is_nan());
        }
    }

    #[test]
    fn scales_are_powers_of_two() {
        use PowerRounding::{Down, Nearest, Up};
        for code in 0..0xff {
            let x = F8E8M0(code).to_f32();
            assert_eq!(F8E8M0::from_f32(x, true, Up), F8E8M0(code));
        }
        for (x, saturate, rounding, code) in [
            (1.1, true, Up, 128),
            (1.1, true, Down, 127),
            (1.1, true, Nearest, 127),
            (1.5, true, Nearest, 128),
            (0., true, Up, 0),
            (0., false, Nearest, 0xff),
            (f64::INFINITY, true, Up, 0xfe),
            (f64::INFINITY, false, Up, 0xff),
            (2f64.powi(128), true, Down, 0xfe),
            (2f64.powi(127) * 1.5, false, Up, 0xff),
            (-1., true, Up, 0xff),
            (f64::NAN, true, Up, 0xff),
        ] {
            let got = F8E8M0::from_f64(x, saturate, rounding);
            assert_eq!(got, F8E8M0(code), "{x} {saturate} {rounding:?}");
        }
        assert!(F8E8M0(0xff).to_f32().is_nan());
    }
}
