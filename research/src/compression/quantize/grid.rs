//! The grid of an integer format: evenly spaced values with one scale and zero point per group of a
//! weight's row.

use crate::error::{Error, Result};

/// How the scale and the zero point follow from the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Zero point 2^(b−1), scale −m / 2^(b−1), where m is the value of largest magnitude. The scale
    /// takes the sign which puts m on code 0, so all 2^b codes are in use. It is the rule of ONNX
    /// Runtime's quantiser for `MatMulNBits`, and has a lower error than [`Scheme::Restricted`].
    Symmetric,
    /// Zero point 2^(b−1), scale max|w| / (2^(b−1) − 1), always positive; code 0 is not used. A
    /// `DequantizeLinear` of signed integers expects it.
    Restricted,
    /// Scale (max − min) / (2^b − 1) of the range with 0 in it, zero point rounded to a code.
    Asymmetric,
}

/// A format of weights in 2 to 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    bits: u8,
    group: Option<usize>,
    scheme: Scheme,
}

impl Grid {
    /// A grid of `bits` bits, whose scale is shared by `group` elements of a row, or by the whole
    /// row. The last group of a row may be shorter.
    ///
    /// # Errors
    /// Fails if `bits` is not in 2..=8 or `group` is 0.
    pub fn new(bits: u8, group: Option<usize>, scheme: Scheme) -> Result<Self> {
        if !(2..=8).contains(&bits) {
            let value = bits.to_string();
            return Err(Error::Setting { name: "bits", value, expected: "2 to 8" });
        }
        if group == Some(0) {
            let expected = "at least 1 element";
            return Err(Error::Setting { name: "group", value: "0".into(), expected });
        }
        Ok(Self { bits, group, scheme })
    }

    /// Bits of a code.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Elements along k that share a scale; `None` for the whole row.
    pub fn group(&self) -> Option<usize> {
        self.group
    }

    /// The rule of the scales.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The largest code, 2^b − 1.
    pub fn code_max(&self) -> u8 {
        u8::MAX >> (8 - self.bits)
    }

    /// Elements of a whole group in a row of k.
    pub fn group_len(&self, k: usize) -> usize {
        self.group.unwrap_or(k).max(1)
    }

    /// Groups of a row of k.
    pub fn groups(&self, k: usize) -> usize {
        k.div_ceil(self.group_len(k))
    }

    /// The scale and zero point for the finite values of a group. A group of zeros has scale 1.
    pub fn fit(&self, values: impl IntoIterator<Item = f32>) -> GroupParams {
        let (mut low, mut high) = (0f32, 0f32);
        for v in values {
            (low, high) = (low.min(v), high.max(v));
        }
        self.fit_range(low, high)
    }

    /// The scale and zero point for values from `low` ≤ 0 to `high` ≥ 0.
    pub fn fit_range(&self, low: f32, high: f32) -> GroupParams {
        let middle = 1u8 << (self.bits - 1);
        let codes = f32::from(self.code_max());
        let scale = match self.scheme {
            Scheme::Symmetric => (if high > -low { -high } else { -low }) / f32::from(middle),
            Scheme::Restricted => high.max(-low) / f32::from(middle - 1),
            Scheme::Asymmetric => high / codes - low / codes,
        };
        // A subnormal scale has too few bits for its codes.
        let scale = if scale.abs() < f32::MIN_POSITIVE { 1.0 } else { scale };
        let zero = match self.scheme {
            Scheme::Asymmetric => (-low / scale).round_ties_even().clamp(0.0, codes) as u8,
            Scheme::Symmetric | Scheme::Restricted => middle,
        };
        GroupParams { scale, zero, code_max: self.code_max() }
    }
}

/// The scale and zero point of one group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupParams {
    /// The distance of two neighbouring values; negative where the codes run downwards.
    pub scale: f32,
    /// The code of 0.
    pub zero: u8,
    /// The largest code.
    pub code_max: u8,
}

impl GroupParams {
    /// The code of the value nearest to w.
    pub fn code(&self, w: f32) -> u8 {
        self.clamp((w / self.scale).round_ties_even())
    }

    /// The code of a whole number of steps from 0.
    pub(super) fn clamp(&self, steps: f32) -> u8 {
        (steps + f32::from(self.zero)).clamp(0.0, f32::from(self.code_max)) as u8
    }

    /// The value of a code: (code − zero) · scale.
    pub fn value(&self, code: u8) -> f32 {
        // Near the largest float, the rounded scale may lead beyond it.
        ((f32::from(code) - f32::from(self.zero)) * self.scale).clamp(f32::MIN, f32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: [Scheme; 3] = [Scheme::Symmetric, Scheme::Restricted, Scheme::Asymmetric];

    /// Groups of one value: zeros come back exactly with scale 1, others to the last bit or two.
    #[test]
    fn constant_groups() {
        for scheme in SCHEMES {
            for bits in 2..=8 {
                let grid = Grid::new(bits, None, scheme).unwrap();
                for value in [0.0f32, 3.7, -0.013, 1e-30, -1e30, f32::MAX, f32::MIN] {
                    let params = grid.fit([value; 5]);
                    let found = params.value(params.code(value));
                    assert!((found - value).abs() <= value.abs() * 2.5e-7, "{scheme:?} {bits}");
                    if value == 0.0 {
                        assert_eq!((params.scale, found), (1.0, 0.0));
                    }
                    if scheme == Scheme::Symmetric {
                        assert_eq!(found, value);
                    }
                }
                // Subnormal values become 0.
                let params = grid.fit([1e-42]);
                assert_eq!((params.scale, params.value(params.code(1e-42))), (1.0, 0.0));
            }
        }
    }

    /// 0 has a code in each scheme, and no value within the range is further than half a step from
    /// its own; a rounded zero point or the unused code may clip the end by half a step more.
    #[test]
    fn half_a_step() {
        for scheme in SCHEMES {
            for bits in 2..=8 {
                let grid = Grid::new(bits, None, scheme).unwrap();
                for (low, high) in [(-1.0, 2.0), (-3.0, 0.1), (0.2, 1.0), (-1.0, -0.5)] {
                    let params = grid.fit([low, high]);
                    assert_eq!(params.value(params.code(0.0)), 0.0);
                    for i in 0..=100 {
                        let w = low + (high - low) * i as f32 / 100.0;
                        let error = (params.value(params.code(w)) - w).abs();
                        let end = if scheme == Scheme::Restricted { 0.5 } else { 1.0 };
                        assert!(
                            error <= params.scale.abs() * (end + 1e-4),
                            "{scheme:?} {bits} {w}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for (bits, group) in [(1, None), (9, None), (4, Some(0))] {
            assert!(Grid::new(bits, group, Scheme::Symmetric).is_err());
        }
    }
}
