//! Reductions over axes.

/// What becomes of the reduced elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceKind {
    /// Arithmetic mean.
    Mean,
    /// Sum.
    Sum,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Product.
    Prod,
    /// Sum of absolute values.
    L1,
    /// Square root of the sum of squares.
    L2,
    /// Sum of squares.
    SumSquare,
    /// Logarithm of the sum of exponentials.
    LogSumExp,
}

/// `ReduceMean`, `ReduceSum` and so on: inputs x and the axes (i64, optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduce {
    /// The reduction.
    pub kind: ReduceKind,
    /// Stands in for an absent axes input, negative from the back.
    pub axes: Option<Vec<i64>>,
    /// Keeps the reduced axes with size 1.
    pub keep_dims: bool,
    /// Without axes, reduces nothing instead of everything.
    pub noop_with_empty_axes: bool,
}

impl Reduce {
    /// A reduction over `axes`, or over everything, that keeps the rank.
    #[must_use]
    pub fn new(kind: ReduceKind, axes: Option<Vec<i64>>) -> Self {
        Self { kind, axes, keep_dims: true, noop_with_empty_axes: false }
    }
}
crate::ops::stub!(Reduce);
