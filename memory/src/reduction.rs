//! How collectives combine elements of several devices or machines.

/// How the elements of several ranks at one position are combined. Integers wrap around; NaN
/// propagates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their sum divided by their number; for integers, rounded towards zero.
    Mean,
}
