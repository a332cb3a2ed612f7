//! Normalisation over groups of channels.

/// `GroupNormalization`: inputs x `[n, c, …]`, scale and bias.
///
/// Scale and bias have one entry a channel (opset 21) or one a group (opset 18); which, their
/// length tells.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNorm {
    /// Number of groups; divides the channels.
    pub groups: usize,
    /// Added to the variance before the square root.
    pub epsilon: f32,
}
crate::ops::stub!(GroupNorm);
