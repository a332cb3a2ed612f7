//! Weights in 16 bits: IEEE 754 binary16 (f16) and bfloat16, rounded to nearest even.

use crate::error::{Error, Result};

/// A float format of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfFormat {
    /// 5 bits of exponent, 10 of fraction; the largest value is 65504.
    F16,
    /// 8 bits of exponent, 7 of fraction; the range of f32.
    Bf16,
}

/// What happens to a value that would round to infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// An error; the caller keeps the tensor as it is.
    Refuse,
    /// The largest value of the format, with the sign.
    Saturate,
}

/// Values in a format of 16 bits, and what that cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halved {
    /// The format.
    pub format: HalfFormat,
    /// The bits of each value.
    pub bits: Vec<u16>,
    /// Values that were beyond the largest of the format.
    pub saturated: usize,
    /// Values other than 0 that became 0.
    pub flushed: usize,
}

impl Halved {
    /// Rounds finite values.
    ///
    /// # Errors
    /// Fails if a value is not finite, or is beyond the format's range and `overflow` refuses it.
    pub fn round(values: &[f32], format: HalfFormat, overflow: Overflow) -> Result<Self> {
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(refuse(format!("value {value}, expected finite values")));
        }
        let (infinity, round): (u16, fn(f32) -> u16) = match format {
            HalfFormat::F16 => (0x7c00, f16_bits),
            HalfFormat::Bf16 => (0x7f80, bf16_bits),
        };
        let mut halved =
            Self { format, bits: Vec::with_capacity(values.len()), saturated: 0, flushed: 0 };
        for &value in values {
            let mut bits = round(value);
            if bits & 0x7fff == infinity {
                halved.saturated += 1;
                bits -= 1;
            }
            halved.flushed += usize::from(bits & 0x7fff == 0 && value != 0.0);
            halved.bits.push(bits);
        }
        if halved.saturated > 0 && overflow == Overflow::Refuse {
            let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
            let (count, limit) = (halved.saturated, value(infinity - 1, format));
            return Err(refuse(format!(
                "{count} values are beyond the range, the largest {largest}, expected at most {limit}"
            )));
        }
        Ok(halved)
    }

    /// The values that the bits stand for.
    pub fn values(&self) -> Vec<f32> {
        self.bits.iter().map(|&bits| value(bits, self.format)).collect()
    }
}

fn bf16_bits(x: f32) -> u16 {
    // The upper half of the f32; a carry into the exponent gives the next power of two.
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn f16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let size = bits & 0x7fff_ffff;
    if size < 0x3880_0000 {
        // Below 2^−14 the values are whole multiples of 2^−24.
        let steps = (f32::from_bits(size) * 16_777_216.0).round_ties_even();
        return sign | steps as u16;
    }
    let rounded = (size + 0x0fff + (size >> 13 & 1)) >> 13;
    // The exponent's bias falls from 127 to 15.
    sign | (rounded - (112 << 10)).min(0x7c00) as u16
}

fn value(bits: u16, format: HalfFormat) -> f32 {
    if format == HalfFormat::Bf16 {
        return f32::from_bits(u32::from(bits) << 16);
    }
    let (sign, size) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    let magnitude = if size < 0x0400 {
        size as f32 / 16_777_216.0
    } else {
        f32::from_bits((size + (112 << 10)) << 13)
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "round to 16 bits", message }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng, sqnr_db};
    use super::*;
    use HalfFormat::{Bf16, F16};
    use ndarray::Array2;

    /// SQNR of N(0, 1): f16 73.65 dB, bf16 55.59 dB.
    #[test]
    fn sqnr_of_gaussian() {
        let w = gaussian(1, 200_000, &mut rng(5));
        for (format, expected) in [(F16, 73.65), (Bf16, 55.59)] {
            let halved =
                Halved::round(w.as_slice().unwrap(), format, Overflow::Refuse).unwrap().values();
            let found = Array2::from_shape_vec((1, halved.len()), halved).unwrap();
            let found = sqnr_db(w.view(), found.view());
            assert!((found - expected).abs() < 0.1, "{format:?}: {found}");
        }
    }

    /// Bits by IEEE 754: ties go to even, subnormals, the smallest steps, the largest values.
    #[test]
    fn known_bits() {
        let one = 1f32;
        for (format, x, bits) in [
            (F16, one, 0x3c00),
            (F16, -2.0, 0xc000),
            (F16, 65504.0, 0x7bff),
            (F16, 65519.0, 0x7bff),
            (F16, 1.0 + 2f32.powi(-11), 0x3c00),
            (F16, 1.0 + 3.0 * 2f32.powi(-11), 0x3c02),
            (F16, 2f32.powi(-14), 0x0400),
            (F16, 2f32.powi(-24), 0x0001),
            (F16, 2f32.powi(-25), 0x0000),
            (F16, 1.5 * 2f32.powi(-24), 0x0002),
            (F16, 0.1, 0x2e66),
            (Bf16, one, 0x3f80),
            (Bf16, 1.0 + 2f32.powi(-8), 0x3f80),
            (Bf16, 1.0 + 3.0 * 2f32.powi(-8), 0x3f82),
            (Bf16, -0.1, 0xbdcd),
        ] {
            let found = Halved::round(&[x], format, Overflow::Refuse).unwrap();
            assert_eq!(found.bits, [bits], "{format:?} {x}");
        }
    }

    /// Every finite bit pattern stands for a value that rounds to itself.
    #[test]
    fn values_are_fixed_points() {
        for (format, infinity) in [(F16, 0x7c00), (Bf16, 0x7f80)] {
            let bits: Vec<u16> = (0..infinity).flat_map(|b| [b, b | 0x8000]).collect();
            let all = Halved { format, bits, saturated: 0, flushed: 0 };
            assert_eq!(Halved::round(&all.values(), format, Overflow::Refuse).unwrap(), all);
        }
    }

    #[test]
    fn overflow_is_refused_or_saturated() {
        let values = [1e5, -65520.0, 1e-9, 0.0];
        assert!(Halved::round(&values, F16, Overflow::Refuse).is_err());
        let halved = Halved::round(&values, F16, Overflow::Saturate).unwrap();
        assert_eq!(halved.values(), [65504.0, -65504.0, 0.0, 0.0]);
        assert_eq!((halved.saturated, halved.flushed), (2, 1));
        assert!(Halved::round(&values[..1], Bf16, Overflow::Refuse).is_ok());
        assert!(Halved::round(&[f32::MAX], Bf16, Overflow::Refuse).is_err());
        assert!(Halved::round(&[f32::NAN], F16, Overflow::Saturate).is_err());
    }
}
