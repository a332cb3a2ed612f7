//! Any tensor as a matrix.

/// `Flatten`: the axes before `axis` become the rows, the others the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flatten {
    /// First axis of the columns, negative from the back; may be the rank.
    pub axis: i64,
}

impl Default for Flatten {
    fn default() -> Self {
        Self { axis: 1 }
    }
}
crate::ops::stub!(Flatten);
