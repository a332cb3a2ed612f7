//! Batch normalisation at inference: a scale and a shift per channel.

/// `BatchNormalization` with running statistics.
///
/// Inputs: x `[n, c, …]`, scale, bias, mean, variance, each `[c]`. One output of x's type.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}
crate::ops::stub!(BatchNorm);
