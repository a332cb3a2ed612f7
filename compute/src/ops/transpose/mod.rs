//! Reorders axes.

/// `Transpose`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transpose {
    /// Input axis of each output axis; reversed when absent.
    pub perm: Option<Vec<usize>>,
}
crate::ops::stub!(Transpose);
