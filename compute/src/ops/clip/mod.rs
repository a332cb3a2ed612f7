//! Limits every element to a range.

/// `Clip`: inputs x, min (scalar, optional), max (scalar, optional).
///
/// The attributes stand in for an input that is absent (opset < 11), or are what a compiler
/// folded a constant input into; for integer dtypes they must be integers in range.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clip {
    /// Lower bound.
    pub min: Option<f32>,
    /// Upper bound.
    pub max: Option<f32>,
}
crate::ops::stub!(Clip);
