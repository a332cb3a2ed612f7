//! Inserts axes of size 1.

/// `Unsqueeze`: inputs data and the axes (i64) as positions in the output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsqueeze {
    /// Stands in for an absent axes input (opset < 13).
    pub axes: Option<Vec<i64>>,
}
crate::ops::stub!(Unsqueeze);
