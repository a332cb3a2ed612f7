//! Picks slices by index.

/// `Gather`: inputs data and indices (i32 or i64, any rank, negative from the back).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gather {
    /// Axis of data that is indexed, negative from the back.
    pub axis: i64,
}
crate::ops::stub!(Gather);
