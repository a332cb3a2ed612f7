//! ArgMax and ArgMin: the position of the extreme value along one axis.

/// Which extreme is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// `ArgMax`, `ArgMin`: one input of any numeric dtype, one i64 output.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgReduce {
    /// Which extreme.
    pub kind: ArgKind,
    /// Axis, negative from the back.
    pub axis: i64,
    /// Keeps the reduced axis with size 1.
    pub keep_dims: bool,
    /// Of equal extremes, takes the last instead of the first.
    pub select_last_index: bool,
}
crate::ops::stub!(ArgReduce);
