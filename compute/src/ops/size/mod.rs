//! A tensor's element count as a tensor.

/// `Size`: any input, i64 scalar output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Size;
crate::ops::stub!(Size);
