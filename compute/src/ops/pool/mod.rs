//! Max and average pooling over windows.
use crate::window::Pads;

/// What becomes of a window's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest; padding never wins.
    Max,
    /// The mean.
    Average {
        /// Divides by the window's size even where it hangs over into the padding.
        count_include_pad: bool,
    },
}

/// `MaxPool` (first output), `AveragePool`: `[n, c, spatial…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Maximum or mean.
    pub kind: PoolKind,
    /// Window size, one a spatial axis.
    pub kernel: Vec<usize>,
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// Padding around the input.
    pub pads: Pads,
    /// One a spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Rounds the output size up instead of down.
    pub ceil_mode: bool,
}
crate::ops::stub!(Pool);
