//! The self-test's operations on the processor, compiled once per instruction set, so that the test
//! runs the instructions that kernels use.

use crate::self_test::{GROUP, Operands, Outcomes, TestOp};
use std::fmt;

/// The instruction sets that code is specialised for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimdLevel {
    /// The baseline of this architecture (SSE2, NEON).
    Baseline,
    /// AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 (F, BW, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Baseline => "baseline instructions",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "AVX-512",
        })
    }
}

impl SimdLevel {
    /// Every level that this processor has, the best one last.
    pub(crate) fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut levels = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if fma {
                levels.push(Self::Avx2);
            }
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if fma && avx512 {
                levels.push(Self::Avx512);
            }
        }
        levels
    }

    /// The best level that this processor has.
    pub(crate) fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Baseline)
    }

    /// Calculates every operation with this level's instructions.
    pub(crate) fn arithmetic(self, operands: &Operands) -> Outcomes {
        match self {
            Self::Baseline => calculate(operands),
            // SAFETY: a level comes from `available`, which has checked these features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { calculate_avx2(operands) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { calculate_avx512(operands) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn calculate_avx2(operands: &Operands) -> Outcomes {
    calculate(operands)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn calculate_avx512(operands: &Operands) -> Outcomes {
    calculate(operands)
}

/// The operations in plain Rust; inlined, it is compiled with the caller's instructions.
#[inline(always)]
fn calculate(operands: &Operands) -> Outcomes {
    let Operands { a, b, c, n, x, y } = operands;
    TestOp::ALL
        .into_iter()
        .map(|op| {
            let results = match op {
                TestOp::Fma => {
                    let triples = a.iter().zip(b).zip(c);
                    triples.map(|((a, b), c)| a.mul_add(*b, *c).to_bits()).collect()
                }
                TestOp::Exp => a.iter().map(|a| exp(*a).to_bits()).collect(),
                TestOp::DivideSqrt => {
                    let pairs = b.iter().zip(c);
                    pairs.map(|(b, c)| (b.sqrt() / (1.0 + c * c)).to_bits()).collect()
                }
                TestOp::Integer => {
                    let pairs = x.iter().zip(y);
                    pairs.map(|(x, y)| x.wrapping_mul(*y).wrapping_add((x >> 7) ^ y)).collect()
                }
                TestOp::GroupSum => {
                    let sums = n.chunks(GROUP).map(|group| group.iter().sum::<f32>());
                    sums.map(f32::to_bits).collect()
                }
            };
            (op, results)
        })
        .collect()
}

/// e to the power of `value`, for |value| ≤ 80: reduced by powers of two to |r| ≤ ln 2 / 2, then
/// the series up to the seventh power. Its remainder is below an f32's last bit.
#[inline(always)]
fn exp(value: f32) -> f32 {
    /// ln 2 in two parts, so that the reduction does not lose bits: the first has a short
    /// mantissa, and its products with small whole numbers are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const SERIES: [f32; 6] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let whole = (value * std::f32::consts::LOG2_E).round();
    let rest = whole.mul_add(-LN2_LOW, whole.mul_add(-LN2_HIGH, value));
    let mut sum = 1.0 / 5040.0;
    for factor in SERIES {
        sum = rest.mul_add(sum, factor);
    }
    let sum = rest.mul_add(sum, 1.0);
    // A whole power of 2, made by writing the exponent's bits.
    sum * f32::from_bits(((whole as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_calculates_the_same_within_the_tests_tolerance() {
        let operands = Operands::new();
        let reference = SimdLevel::Baseline.arithmetic(&operands);
        for level in SimdLevel::available() {
            for ((op, given), (_, expected)) in level.arithmetic(&operands).iter().zip(&reference) {
                let near = given.iter().zip(expected).all(|(given, expected)| {
                    let (given_f, expected_f) = (f32::from_bits(*given), f32::from_bits(*expected));
                    given == expected
                        || (given_f - expected_f).abs() <= 4e-7 * expected_f.abs()
                            && matches!(op, TestOp::Exp | TestOp::DivideSqrt)
                });
                assert!(near, "{op} with {level}");
            }
        }
    }

    #[test]
    fn exp_is_near_over_its_range() {
        for step in -8000..=8000 {
            let value = step as f32 / 100.0;
            let expected = f64::from(value).exp();
            let error = (f64::from(exp(value)) / expected - 1.0).abs();
            assert!(error < 5e-7, "exp({value}) is off by {error}");
        }
    }
}
