//! The same elements under another shape.

/// `Reshape`: inputs data and the shape (i64, rank 1), where one -1 is what remains and, unless
/// `allow_zero`, 0 copies the input's dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reshape {
    /// Takes 0 as a size of zero.
    pub allow_zero: bool,
}
crate::ops::stub!(Reshape);
