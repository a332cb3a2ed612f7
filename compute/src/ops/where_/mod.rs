//! Chooses between two tensors, element by element.

/// `Where`: inputs condition (bool), a, b of one dtype; all three broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Where;
crate::ops::stub!(Where);
