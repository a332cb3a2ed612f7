//! Convolutions as they are on channels-last images: with their weights packed for other kernels.

use super::Conv;
use crate::isa::Simd;
use crate::op::ValueInfo;
use crate::ops::{ConvGeometry, ConvHints, ConvNhwc};
use crate::reorder::{CHANNELS_LAST, Reordered};
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Dim, Tensor};

/// The form of a two-dimensional f32 convolution whose weight is known.
pub(super) fn reordered<'a>(
    op: &Conv,
    order: &[usize],
    inputs: &[Option<&'a ValueInfo>],
) -> Option<Reordered<'a>> {
    let x = inputs.first().copied().flatten()?;
    let weight = inputs.get(1).copied().flatten()?.constant.as_ref()?;
    let usable = *order == CHANNELS_LAST && weight.dtype() == DType::F32 && x.rank() == Some(4);
    let geometry = geometry(op, weight).filter(|_| usable && !weight.is_empty())?;
    let known = |axis: usize| x.dim(axis).and_then(Dim::known);
    let input = known(2).zip(known(3)).map(|(h, w)| [h, w]);
    let batch = known(0);
    let bias = inputs.get(2).copied().flatten().map(|_| Operand::Input(2));
    let reads = (0..inputs.len()).map(|i| i == 0).collect();
    let form = Reordered::new(reads, vec![true], move |hints| {
        let bf16 = hints.bf16 && Simd::detect(hints.isa).bf16();
        let hints = ConvHints { batch, input, bf16 };
        let (op, packed) = ConvNhwc::pack(geometry, &weight.view(), hints)?;
        let mut operands = vec![Operand::Input(0), Operand::Constant(packed)];
        operands.extend(bias);
        Ok(vec![Step::new(op, operands)])
    });
    Some(form.faster())
}

/// The convolution's attributes, where they are those of two spatial axes.
pub(super) fn geometry(op: &Conv, weight: &Tensor) -> Option<ConvGeometry> {
    let [maps, per_group, kh, kw] = *weight.shape().dims() else { return None };
    if op.group == 0 || !maps.is_multiple_of(op.group) {
        return None;
    }
    let pair = |values: &[usize]| match *values {
        [] => Some([1, 1]),
        [a, b] => Some([a, b]),
        _ => None,
    };
    Some(ConvGeometry {
        kernel: [kh, kw],
        strides: pair(&op.strides)?,
        dilations: pair(&op.dilations)?,
        pads: op.pads.clone(),
        group: op.group,
        channels: per_group.checked_mul(op.group)?,
        maps,
    })
}
