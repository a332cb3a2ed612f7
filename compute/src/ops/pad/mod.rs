//! Adds elements around a tensor, or cuts them off.

/// What the new elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// A given value.
    Constant,
    /// The tensor mirrored at its edge, which is not repeated.
    Reflect,
    /// The nearest element.
    Edge,
}

/// `Pad`: inputs x, pads (i64 `[2 · axes]`: all begins, then all ends; negative cuts), value
/// (scalar, optional), axes (optional).
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// What the new elements are.
    pub mode: PadMode,
    /// Stands in for an absent pads input (opset < 11).
    pub pads: Option<Vec<i64>>,
    /// Stands in for an absent value input (opset < 11); 0 when both are absent.
    pub value: Option<f32>,
}
crate::ops::stub!(Pad);
