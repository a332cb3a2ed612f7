//! The channels-last form of convolutions, with weights packed for other kernels.

use super::Conv;
use crate::isa::Simd;
use crate::op::ValueInfo;
use crate::ops::{ConvGeometry, ConvHints, ConvNhwc};
use crate::reorder::{CHANNELS_LAST, Reordered};
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Dim, Tensor};
use std::borrow::Cow;

/// The channels-last form of a two-dimensional f32 convolution whose weight is constant.
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
        let (group, weight) = match geometry.is_grouped() && !bf16 {
            true => (geometry.group, Cow::Borrowed(weight)),
            false => merged(geometry.group, weight),
        };
        let geometry = ConvGeometry { group, ..geometry };
        let (op, packed) = ConvNhwc::pack(geometry, &weight.view(), hints)?;
        let mut operands = vec![Operand::Input(0), Operand::Constant(packed)];
        operands.extend(bias);
        Ok(vec![Step::new(op, operands)])
    });
    Some(form.faster())
}

/// Groups with fewer output channels are merged: kernels keep this many in a register.
const COLUMNS: usize = 16;

/// Merges groups of few channels into fewer groups, padded with zeros: products with copied windows,
/// and of bytes, take as long for a small group as for a merged one. Gives the number of groups and
/// the weight `[m, c / group, kh, kw]`. Depthwise convolutions are left to their own kernels.
pub(super) fn merged(group: usize, weight: &Tensor) -> (usize, Cow<'_, Tensor>) {
    let plain = (group, Cow::Borrowed(weight));
    let [m, c, kh, kw] = *weight.shape().dims() else { return plain };
    let columns = m.checked_div(group).unwrap_or(0);
    if group <= 1 || columns == 0 || columns >= COLUMNS || (c == 1 && columns == 1) {
        return plain;
    }
    // The most groups that fit a register and divide the groups evenly.
    let most = COLUMNS / columns;
    let Some(together) = (2..=most).rev().find(|n| group.is_multiple_of(*n)) else { return plain };
    let size = weight.dtype().size();
    let window = kh * kw * size;
    let Ok(mut wide) = Tensor::zeros(weight.dtype(), [m, c * together, kh, kw]) else {
        return plain;
    };
    let from = weight.as_bytes();
    let Ok(to) = wide.as_bytes_mut() else { return plain };
    for map in 0..m {
        let place = map / columns % together;
        let row = &from[map * c * window..][..c * window];
        to[(map * together + place) * c * window..][..c * window].copy_from_slice(row);
    }
    (group / together, Cow::Owned(wide))
}

/// The geometry of a convolution of two spatial axes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{noise, run};

    #[test]
    fn groups_of_few_channels_are_computed_together() {
        for (group, per_group, maps, left) in [
            (8, 4, 32, 2),
            (32, 4, 128, 8),
            (3, 2, 6, 1),
            (4, 16, 64, 4),
            (6, 1, 6, 6),
            (5, 3, 10, 1),
        ] {
            let weight = noise(&[maps, per_group, 3, 3], 1);
            let (groups, wide) = merged(group, &weight);
            assert_eq!(groups, left, "{group} {per_group} {maps}");
            let x = noise(&[2, group * per_group, 5, 6], 2);
            let plain = run(&Conv { group, ..Conv::default() }, &[&x, &weight]);
            let merged = run(&Conv { group: groups, ..Conv::default() }, &[&x, &wide]);
            crate::testing::assert_close(&merged, &plain, 1e-5);
        }
    }
}
