//! Cuts a tensor into pieces along an axis.

/// `Split`: inputs data and the sizes of the pieces (i64, optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Number of pieces; without sizes they are equal, the last possibly smaller.
    pub outputs: usize,
    /// Stands in for an absent sizes input (opset < 13).
    pub sizes: Option<Vec<i64>>,
}
crate::ops::stub!(Split);
