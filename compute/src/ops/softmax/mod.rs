//! Softmax and its logarithm.

/// `Softmax`, `LogSoftmax`: one float input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Softmax {
    /// Axis, negative from the back.
    pub axis: i64,
    /// The logarithm of the softmax.
    pub log: bool,
    /// Normalises over all axes from `axis` on, as opsets before 13 do.
    pub flatten: bool,
}
crate::ops::stub!(Softmax);
