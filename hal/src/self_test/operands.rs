//! The self-test's operations and operands.

use std::fmt;

/// Elements of the self-test: several work-groups on any device, and fast to compute.
const LENGTH: usize = 4096;

/// The operations of the self-test, element by element, on numbers for which every device must be
/// right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOp {
    /// `fma(a, b, c)` in f32, exact.
    Fma,
    /// `exp(a)` in f32, within 1e-6 of the value.
    Exp,
    /// `sqrt(b) / (1 + c²)` in f32, within 1e-6 of the value.
    DivideSqrt,
    /// `x · y + (x >> 7) ^ y` in wrapping u32, exact.
    Integer,
    /// The sum of each 64 elements of `n` in f32, exact: they are small whole numbers.
    GroupSum,
}

impl TestOp {
    /// Every operation, in the order of testing.
    pub const ALL: [Self; 5] =
        [Self::Fma, Self::Exp, Self::DivideSqrt, Self::Integer, Self::GroupSum];

    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fma => "fma",
            Self::Exp => "exp",
            Self::DivideSqrt => "divide and square root",
            Self::Integer => "integer arithmetic",
            Self::GroupSum => "group sum",
        }
    }
}

impl fmt::Display for TestOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The operands of the self-test; all vectors have the same length, a multiple of 64.
#[derive(Debug, Clone)]
pub struct Operands {
    /// f32 in −10..10.
    pub a: Vec<f32>,
    /// f32 in 0.5..10.5.
    pub b: Vec<f32>,
    /// f32 in −10..10.
    pub c: Vec<f32>,
    /// Small whole numbers as f32, so that sums are exact in any order.
    pub n: Vec<f32>,
    /// Any u32.
    pub x: Vec<u32>,
    /// Any u32.
    pub y: Vec<u32>,
}

/// One result of each calculated operation: f32 results as their bits.
pub type Outcomes = Vec<(TestOp, Vec<u32>)>;

impl Operands {
    /// The operands, which are the same on every machine.
    pub(crate) fn new() -> Self {
        // xorshift32; its quality is enough to touch every bit of the operands.
        let mut state = 0x9e37_79b9_u32;
        let mut word = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        let mut words = || -> Vec<u32> { (0..LENGTH).map(|_| word()).collect() };
        // 24 bits fill the mantissa of an f32 exactly.
        let unit = |word: &u32| (word >> 8) as f32 / 16_777_216.0;
        let mut floats = |low: f32| -> Vec<f32> {
            words().iter().map(|word| low + 20.0 * unit(word).clamp(0.0, 1.0)).collect()
        };
        let (a, c) = (floats(-10.0), floats(-10.0));
        let b = floats(0.0).iter().map(|value| 0.5 + value / 2.0).collect();
        let n = words().iter().map(|word| (word >> 24) as f32 - 128.0).collect();
        Self { a, b, c, n, x: words(), y: words() }
    }
}
