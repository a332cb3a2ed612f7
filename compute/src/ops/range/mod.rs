//! Evenly spaced numbers.

/// `Range`: scalars start, limit (excluded), delta of one dtype.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range;
crate::ops::stub!(Range);
