//! Resampling to another size.

/// How a new element comes from its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeMode {
    /// The nearest one.
    Nearest(NearestRounding),
    /// Linear interpolation along each resized axis.
    Linear,
}

/// Which neighbour is the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "ONNX's own names")]
pub enum NearestRounding {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

/// How a position in the output maps to one in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "ONNX's own names")]
pub enum CoordinateMode {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// `Resize` (and `Upsample`: nearest, asymmetric, floor): inputs x, roi (ignored), scales (f32,
/// optional), sizes (i64, optional); exactly one of the last two.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// Interpolation.
    pub mode: ResizeMode,
    /// Mapping of positions.
    pub coordinates: CoordinateMode,
    /// Axes that scales and sizes speak of; all when absent.
    pub axes: Option<Vec<i64>>,
    /// Stands in for an absent scales input (`Upsample` before opset 9).
    pub scales: Option<Vec<f32>>,
}
crate::ops::stub!(Resize);
