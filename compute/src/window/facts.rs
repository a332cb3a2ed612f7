//! The axes and the multiply-adds of convolutions and other windows.

use super::{AxisPads, Spec};
use crate::cost::elements;
use crate::op::ValueInfo;
use crate::{Axes, AxisKind};
use lgp_memory::Dim;

impl Spec {
    /// How an output position depends on the positions of an input of this size; `None` where the
    /// padding depends on an unknown size.
    fn kind(&self, input: &Dim) -> Option<AxisKind> {
        let (before, after) = match self.pads {
            AxisPads::Explicit(begin, end) => (begin, end),
            AxisPads::Same { .. } => {
                // With a stride of 1 all sizes have the same padding.
                let size = if self.stride == 1 { 1 } else { input.known()? };
                let axis = self.axis(size).ok()?;
                (axis.begin, axis.end)
            }
        };
        let stride = self.stride;
        let extent = (self.kernel - 1).checked_mul(self.dilation)?.checked_add(1)?;
        Some(match (extent, stride, before, after) {
            (1, 1, 0, 0) => AxisKind::Each,
            _ => AxisKind::Window { stride, before, extent },
        })
    }
}

/// The axes of windows over the images in input 0: the first axis, `n`, and the spatial axes from
/// `first` on. They are the same axes of the one output. `beside` is an input of the output's
/// shape.
///
/// The axis of channels is left out.
pub(crate) fn image_axes(
    x: &ValueInfo,
    specs: &[Spec],
    first: usize,
    beside: Option<usize>,
) -> Axes {
    let alike = |axis: usize| [(0, axis)].into_iter().chain(beside.map(|input| (input, axis)));
    let axes = Axes::new().each(alike(0), [(0, 0)]);
    specs.iter().zip(first..).fold(axes, |axes, (spec, axis)| {
        match x.dim(axis).and_then(|dim| spec.kind(dim)) {
            Some(AxisKind::Each) => axes.each(alike(axis), [(0, axis)]),
            // The input `beside` has the output's positions and no window, so the axis fits neither
            // kind.
            Some(kind) if beside.is_none() => axes.with(kind, [(0, axis)], [(0, axis)]),
            _ => axes,
        }
    })
}

/// Adds the channels of a convolution of images `[n, c, …]` in one group, or in one group for each
/// channel. `maps` is the weight's axis of output channels: 0, or 1 in a transposed convolution.
/// `row` is an input with an entry for each output channel, such as the bias.
pub(crate) fn channel_axes(
    axes: Axes,
    group: usize,
    weight: &ValueInfo,
    maps: usize,
    row: Option<usize>,
) -> Axes {
    let row = row.map(|input| (input, 0));
    if group == 1 {
        let axes = axes.each([(1, maps)].into_iter().chain(row), [(0, 1)]);
        return axes.all([(0, 1), (1, 1 - maps)], []);
    }
    let known = |axis: usize| weight.dim(axis).and_then(Dim::known);
    if known(0) != Some(group) || known(1) != Some(1) {
        return axes;
    }
    axes.each([(0, 1), (1, 0)].into_iter().chain(row), [(0, 1)])
}

/// The multiply-adds of a convolution: the elements of `of` times the elements of a row of the
/// weight `[rows, …]`. `of` is the output, or the input of a transposed convolution.
pub(crate) fn multiply_adds(of: Option<&ValueInfo>, weight: Option<&ValueInfo>) -> u64 {
    let row = |weight: &ValueInfo| {
        let dims = weight.sym_shape()?.iter().skip(1);
        dims.map(Dim::known).try_fold(1u64, |n, dim| Some(n.saturating_mul(dim? as u64)))
    };
    of.map_or(0, elements).saturating_mul(weight.and_then(row).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Pads, specs};
    use lgp_memory::{DType, SymShape, TensorType};

    fn info(dims: &[Dim]) -> ValueInfo {
        let shape = Some(SymShape(dims.to_vec()));
        ValueInfo::of(TensorType { dtype: DType::F32, shape })
    }

    #[test]
    fn spatial_axes_say_what_a_result_sees() {
        let symbol = |name: &str| Dim::Symbol(name.into());
        let x = info(&[symbol("n"), Dim::Known(3), symbol("h"), Dim::Known(8)]);
        let kinds = |kernel: usize, stride: usize, pads: &Pads, beside: Option<usize>| {
            let specs = specs(&[kernel; 2], &[stride; 2], &[], pads, false).unwrap();
            let axes = image_axes(&x, &specs, 2, beside);
            [0, 2, 3].map(|axis| axes.of_output(0, axis).map(|axis| axis.kind))
        };
        let window = |stride, before| Some(AxisKind::Window { stride, before, extent: 3 });
        let (each, none) = (Some(AxisKind::Each), Pads::default());
        assert_eq!(kinds(3, 2, &none, None), [each, window(2, 0), window(2, 0)]);
        assert_eq!(kinds(3, 1, &Pads::SameLower, None), [each, window(1, 1), window(1, 1)]);
        // Eight pixels with a stride of 2 need one of padding, on the side that the pads name.
        assert_eq!(kinds(3, 2, &Pads::SameUpper, None), [each, None, window(2, 0)]);
        assert_eq!(kinds(3, 2, &Pads::SameLower, None), [each, None, window(2, 1)]);
        assert_eq!(kinds(1, 1, &none, Some(3)), [each; 3]);
        assert_eq!(kinds(3, 2, &none, Some(3)), [each, None, None]);
    }

    #[test]
    fn channels_mix_within_a_group() {
        let weight = |dims: [usize; 3]| info(&dims.map(Dim::Known));
        let axes =
            |group, dims, maps| channel_axes(Axes::new(), group, &weight(dims), maps, Some(2));
        let whole = Axes::new().each([(1, 0), (2, 0)], [(0, 1)]).all([(0, 1), (1, 1)], []);
        assert_eq!(axes(1, [6, 4, 3], 0), whole);
        let transposed = Axes::new().each([(1, 1), (2, 0)], [(0, 1)]).all([(0, 1), (1, 0)], []);
        assert_eq!(axes(1, [4, 6, 3], 1), transposed);
        let depthwise = Axes::new().each([(0, 1), (1, 0), (2, 0)], [(0, 1)]);
        assert_eq!(axes(4, [4, 1, 3], 0), depthwise);
        assert_eq!(axes(2, [4, 2, 3], 0), Axes::new());

        let out = info(&[Dim::Known(2), Dim::Known(5)]);
        let unknown = info(&[Dim::Known(4), Dim::Unknown]);
        assert_eq!(multiply_adds(Some(&out), Some(&weight([4, 2, 3]))), 60);
        assert_eq!(multiply_adds(Some(&out), Some(&unknown)), 0);
    }
}
