//! Broadcasting to a given shape.

/// `Expand`: inputs x and the shape (i64, rank 1); the two broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expand;
crate::ops::stub!(Expand);
