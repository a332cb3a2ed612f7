//! A tensor of one repeated value.
use lgp_memory::Tensor;

/// `ConstantOfShape`: input is the shape (i64, rank 1).
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantOfShape {
    /// The value: exactly one element, whose dtype is the output's. ONNX's default is f32 0.
    pub value: Tensor,
}
crate::ops::stub!(ConstantOfShape);
