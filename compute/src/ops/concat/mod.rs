//! Joins tensors along an axis.

/// `Concat`: one or more inputs that agree in dtype and in every dimension but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concat {
    /// Axis, negative from the back.
    pub axis: i64,
}
crate::ops::stub!(Concat);
