//! Convolution.
use crate::window::Pads;

/// `Conv`: inputs x `[n, c, spatial…]`, weight `[m, c / group, kernel…]`, bias `[m]` (optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conv {
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// Zeros around the input.
    pub pads: Pads,
    /// One a spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Groups of channels that do not mix.
    pub group: usize,
}

impl Default for Conv {
    fn default() -> Self {
        Self { strides: Vec::new(), pads: Pads::default(), dilations: Vec::new(), group: 1 }
    }
}
crate::ops::stub!(Conv);
