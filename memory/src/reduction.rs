//! What collectives make of elements that several devices or machines have in one place.

/// What becomes of the elements that several ranks have in one place. Integers wrap around; NaN
/// passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their sum over their number; of integers, rounded towards zero.
    Mean,
}
