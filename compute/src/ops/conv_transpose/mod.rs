//! Transposed convolution: the gradient of a convolution, used to upsample.
use crate::window::Pads;

/// `ConvTranspose`: inputs x `[n, c, spatial…]`, weight `[c, m / group, kernel…]`,
/// bias `[m]` (optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvTranspose {
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// What is cut off the full output.
    pub pads: Pads,
    /// One a spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Groups of channels that do not mix.
    pub group: usize,
    /// Added to one side of the output; empty means all 0.
    pub output_padding: Vec<usize>,
    /// The output's spatial shape; when given, the pads follow from it.
    pub output_shape: Option<Vec<usize>>,
}

impl Default for ConvTranspose {
    fn default() -> Self {
        Self {
            strides: Vec::new(),
            pads: Pads::default(),
            dilations: Vec::new(),
            group: 1,
            output_padding: Vec::new(),
            output_shape: None,
        }
    }
}
crate::ops::stub!(ConvTranspose);
