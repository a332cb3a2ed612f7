//! Sliding windows: what convolution and pooling share.

/// Padding around the spatial axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pads {
    /// All begins, then all ends; empty means none.
    Explicit(Vec<usize>),
    /// So that the output is `ceil(input / stride)`; an odd rest goes to the end.
    SameUpper,
    /// So that the output is `ceil(input / stride)`; an odd rest goes to the beginning.
    SameLower,
}

impl Default for Pads {
    fn default() -> Self {
        Self::Explicit(Vec::new())
    }
}
