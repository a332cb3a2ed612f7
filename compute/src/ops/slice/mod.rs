//! Cuts ranges out of axes.

/// `Slice`: inputs data, starts, ends, axes (optional), steps (optional), each i32 or i64 rank 1.
/// Each field stands in for its input where that is absent (opset < 10).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// First index of each axis, negative from the back, clamped.
    pub starts: Option<Vec<i64>>,
    /// Index after the last, negative from the back, clamped.
    pub ends: Option<Vec<i64>>,
    /// Axes that are sliced; the first ones when absent.
    pub axes: Option<Vec<i64>>,
    /// Step of each axis, not 0; all 1 when absent.
    pub steps: Option<Vec<i64>>,
}
crate::ops::stub!(Slice);
