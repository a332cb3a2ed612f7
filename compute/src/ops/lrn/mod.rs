//! Local response normalisation across channels.

/// `LRN`: `x / (bias + alpha / size · Σ x²)^beta`, the sum over `size` neighbouring channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Lrn {
    /// Scale of the sum of squares.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
    /// Added to the scaled sum.
    pub bias: f32,
    /// Channels in the sum.
    pub size: usize,
}
crate::ops::stub!(Lrn);
