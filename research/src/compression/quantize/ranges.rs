//! Ranges of activations: a histogram of calibration values, methods that choose a range from it,
//! and the scale and zero point of an 8-bit integer for the range.

mod entropy;
mod histogram;
mod mse;

pub use histogram::Histogram;

use crate::error::{Error, Result};

/// How a range follows from the calibration values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RangeMethod {
    /// All values lie in the range.
    MinMax,
    /// The range from the (100 − p)-th to the p-th percentile, for 50 < p ≤ 100; where it is
    /// symmetric, the p-th percentile of magnitudes.
    Percentile(f64),
    /// The magnitude that keeps the most of the distribution by the Kullback–Leibler divergence
    /// from its quantised form.
    Entropy,
    /// The least mean squared error of rounding.
    Mse,
}

/// A range of values that has 0 in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    low: f32,
    high: f32,
}

impl Range {
    /// The smallest range with 0 and both values in it.
    ///
    /// # Errors
    /// Fails if a value is not finite, or `low` is above `high`.
    pub fn new(low: f32, high: f32) -> Result<Self> {
        if low.is_finite() && high.is_finite() && low <= high {
            return Ok(Self { low: low.min(0.0), high: high.max(0.0) });
        }
        let message = format!("range {low} to {high}, expected finite values in order");
        Err(Error::Compression { method: "choose a range", message })
    }

    /// The lower end, at most 0.
    pub fn low(&self) -> f32 {
        self.low
    }

    /// The upper end, at least 0.
    pub fn high(&self) -> f32 {
        self.high
    }

    /// The scale and zero point by the rule of ONNX's `DynamicQuantizeLinear`: scale
    /// (high − low) / 255, zero point round(−low / scale) above the smallest code.
    pub fn asymmetric(&self, format: Int8) -> Affine {
        let (least, most) = format.codes();
        let codes = (most - least) as f32;
        let scale = usable(self.high / codes - self.low / codes);
        let zero = (least as f32 - self.low / scale).round_ties_even();
        Affine { scale, zero: (zero as i32).clamp(least, most), format }
    }

    /// The scale max(−low, high) / 127 with the zero point in the middle: 0 for `I8`, 128 for `U8`.
    pub fn symmetric(&self, format: Int8) -> Affine {
        let (_, most) = format.codes();
        let zero = most - 127;
        Affine { scale: usable(self.high.max(-self.low) / 127.0), zero, format }
    }
}

/// 1 for a scale that is 0 or subnormal: such a range holds nothing but 0.
fn usable(scale: f32) -> f32 {
    if scale < f32::MIN_POSITIVE { 1.0 } else { scale }
}

/// An integer of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Int8 {
    /// 0 to 255.
    U8,
    /// −128 to 127.
    I8,
}

impl Int8 {
    /// The smallest and the largest code.
    fn codes(self) -> (i32, i32) {
        match self {
            Self::U8 => (0, 255),
            Self::I8 => (-128, 127),
        }
    }
}

/// The scale and zero point of ONNX's `QuantizeLinear` in 8 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// The distance of two neighbouring values.
    pub scale: f32,
    /// The code of 0.
    pub zero: i32,
    /// The integer's format.
    pub format: Int8,
}

impl Affine {
    /// round(x / scale) + zero, ties to even, within the format's codes; NaN gives the zero point.
    pub fn quantize(&self, x: f32) -> i32 {
        let (least, most) = self.format.codes();
        // The cast saturates, so adding the zero point may not overflow an i32.
        let steps = (x / self.scale).round_ties_even() as i32;
        steps.saturating_add(self.zero).clamp(least, most)
    }

    /// (code − zero) · scale.
    pub fn dequantize(&self, code: i32) -> f32 {
        (code - self.zero) as f32 * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of ONNX's `QuantizeLinear`.
    #[test]
    fn quantize_linear() {
        let affine = Affine { scale: 2.0, zero: 128, format: Int8::U8 };
        let codes = [0.0, 2.0, 3.0, 1000.0, -254.0, -1000.0].map(|x| affine.quantize(x));
        assert_eq!(codes, [128, 129, 130, 255, 1, 0]);
    }

    /// The examples of ONNX's `DynamicQuantizeLinear`.
    #[test]
    fn dynamic_quantize_linear() {
        for (x, scale, zero, codes) in [
            ([0.0, 2.0, -3.0, -2.5, 1.34, 0.5], 0.019_607_844, 153, [153, 255, 0, 26, 221, 179]),
            ([-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], 0.015_686_275, 255, [191, 121, 172, 96, 42, 0]),
        ] {
            let low = x.iter().fold(f32::MAX, |m, &v| m.min(v));
            let high = x.iter().fold(f32::MIN, |m, &v| m.max(v));
            let affine = Range::new(low, high).unwrap().asymmetric(Int8::U8);
            assert!((affine.scale - scale).abs() < 1e-9, "{affine:?}");
            assert_eq!((affine.zero, x.map(|x| affine.quantize(x))), (zero, codes));
            let signed = Range::new(low, high).unwrap().asymmetric(Int8::I8);
            assert_eq!(x.map(|x| signed.quantize(x) + 128), codes);
        }
    }

    /// The example of ONNX's `QLinearMatMul`: the product of the values, quantised again.
    #[test]
    fn quantized_product() {
        let affine = |scale, zero| Affine { scale, zero, format: Int8::U8 };
        let (of_a, of_b, of_y) = (affine(0.0066, 113), affine(0.00705, 114), affine(0.0107, 118));
        let a = [[208, 236, 0, 238], [3, 214, 255, 29]];
        let b = [[152, 51, 244], [60, 26, 255], [0, 127, 246], [127, 254, 247]];
        let y = a.map(|row| {
            [0, 1, 2].map(|j| {
                let product = |i: usize| of_a.dequantize(row[i]) * of_b.dequantize(b[i][j]);
                of_y.quantize((0..4).map(product).sum())
            })
        });
        assert_eq!(y, [[168, 115, 255], [1, 66, 151]]);
    }

    #[test]
    fn symmetric_has_its_zero_in_the_middle() {
        let range = Range::new(-1.0, 2.54).unwrap();
        for (format, zero) in [(Int8::I8, 0), (Int8::U8, 128)] {
            let affine = range.symmetric(format);
            assert_eq!((affine.zero, affine.quantize(2.54) - zero), (zero, 127));
            assert!((affine.scale - 0.02).abs() < 1e-8);
            assert!((affine.dequantize(affine.quantize(-1.0)) + 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn extremes() {
        let zero = Range::new(0.0, 0.0).unwrap();
        assert_eq!((zero.asymmetric(Int8::U8).scale, zero.symmetric(Int8::I8).scale), (1.0, 1.0));
        let wide = Range::new(f32::MIN, f32::MAX).unwrap().asymmetric(Int8::U8);
        assert!(wide.scale.is_finite());
        assert!(Range::new(1.0, 0.0).is_err() && Range::new(f32::NAN, 0.0).is_err());
    }
}
