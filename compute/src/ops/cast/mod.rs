//! Conversion between dtypes.
use lgp_memory::DType;

/// `Cast`: converts every element. Floats to integers truncate and saturate, NaN becomes 0;
/// integers wrap; anything but zero is `true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cast {
    /// The output's dtype.
    pub to: DType,
}
crate::ops::stub!(Cast);
