//! Normalisation of each channel of each sample.

/// `InstanceNormalization`: inputs x `[n, c, …]`, scale `[c]`, bias `[c]`.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceNorm {
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for InstanceNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}
crate::ops::stub!(InstanceNorm);
