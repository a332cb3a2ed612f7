//! Normalisation over the last axes.

/// `LayerNormalization`: inputs x, scale, bias (optional); scale and bias broadcast to the
/// normalised axes. Only the first of ONNX's three outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// First axis that is normalised, negative from the back.
    pub axis: i64,
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-5 }
    }
}
crate::ops::stub!(LayerNorm);
