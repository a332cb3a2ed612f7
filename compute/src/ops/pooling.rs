//! The kinds of pooling, and windows, axes and work that pools of all layouts share.

use crate::error::{Error, Result};
use crate::op::ValueInfo;
use crate::window::{Axis, Pads, Spec};
use crate::{Axes, AxisKind};
use lgp_memory::Dim;

/// How a window's elements become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest; padding never wins.
    Max,
    /// The mean.
    Average {
        /// Whether the divisor counts elements of the padding, too.
        count_include_pad: bool,
    },
    /// The sum, of which Lp pooling takes the root.
    Sum,
}

/// How a whole plane becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalPoolKind {
    /// The mean.
    Average,
    /// The largest.
    Max,
    /// The sum, of which Lp pooling takes the root.
    Sum,
}

/// The windows of a pool along an axis of a given size.
///
/// # Errors
/// Padding as large as a window, which would see nothing else.
pub(crate) fn window(spec: &Spec, input: usize) -> Result<Axis> {
    let axis = spec.axis(input)?;
    let reach = (axis.kernel - 1) * axis.dilation + 1;
    if axis.begin >= reach || axis.end >= reach {
        let (begin, end) = (axis.begin, axis.end);
        let message =
            format!("padding {begin} and {end} is not smaller than the window of {reach}");
        return Err(Error::invalid(message));
    }
    Ok(axis)
}

/// The axes of pooling with these windows along the axes from `first` on. Images, along axis 0, and
/// channels, along axis `channels`, are independent.
pub(crate) fn window_axes(
    specs: &[Spec],
    pads: &Pads,
    x: Option<&ValueInfo>,
    [channels, first]: [usize; 2],
) -> Axes {
    let axes = Axes::new().each([(0, 0)], [(0, 0)]).each([(0, channels)], [(0, channels)]);
    specs.iter().enumerate().fold(axes, |axes, (i, spec)| {
        let before = match pads {
            Pads::Explicit(pads) => Some(pads.get(i).copied().unwrap_or(0)),
            // The padding depends on the input's size.
            Pads::SameUpper | Pads::SameLower => {
                let size = x.and_then(|x| x.dim(first + i)).and_then(Dim::known);
                size.and_then(|n| spec.axis(n).ok()).map(|axis| axis.begin)
            }
        };
        let Some(before) = before else { return axes };
        let extent = (spec.kernel - 1).saturating_mul(spec.dilation).saturating_add(1);
        let kind = AxisKind::Window { stride: spec.stride, before, extent };
        axes.with(kind, [(0, first + i)], [(0, first + i)])
    })
}

/// Elements of the windows of all outputs, padding included.
pub(crate) fn window_elements(kernel: &[usize], outputs: &[ValueInfo]) -> u64 {
    let all = outputs.first().map_or(0, crate::cost::elements);
    kernel.iter().fold(all, |n, &taps| n.saturating_mul(taps as u64))
}

/// The axes of pooling whole planes of channels-last images.
pub(crate) fn plane_axes() -> Axes {
    let axes = Axes::new().each([(0, 0)], [(0, 0)]).each([(0, 3)], [(0, 3)]);
    axes.all([(0, 1)], []).all([(0, 2)], [])
}
