//! Drops axes of size 1.

/// `Squeeze`: inputs data and the axes (i64, optional); without axes, all of size 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Squeeze {
    /// Stands in for an absent axes input (opset < 13).
    pub axes: Option<Vec<i64>>,
}
crate::ops::stub!(Squeeze);
