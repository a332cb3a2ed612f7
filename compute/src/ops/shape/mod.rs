//! A tensor's dimensions as a tensor.

/// `Shape`: any input, i64 rank-1 output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// First axis, negative from the back, clamped.
    pub start: i64,
    /// Axis after the last, negative from the back, clamped; the rank when absent.
    pub end: Option<i64>,
}
crate::ops::stub!(Shape);
