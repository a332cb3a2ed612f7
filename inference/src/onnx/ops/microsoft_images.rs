//! The fused operators of ONNX Runtime's optimiser for image and diffusion models, channels last.

use super::conv::{check_kernel, pads};
use super::microsoft::add;
use super::pool::pool;
use super::quantized::emit_all;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Conv, GroupNorm, Identity, PoolKind, Split, Transpose, Unary, UnaryKind,
    Unsqueeze,
};

/// `[n, spatial…, c]` as `[n, c, spatial…]`.
pub(super) fn channels_first(cx: &mut NodeCx<'_>, x: Option<ValueId>, rank: usize) -> ValueId {
    let perm = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    cx.emit(Transpose { perm: Some(perm) }, vec![x])
}

/// Ends the node with `x`, its channels moved to the last axis.
pub(super) fn map_channels_last(
    cx: &mut NodeCx<'_>,
    x: ValueId,
    rank: usize,
) -> Result<(), Refusal> {
    let perm = std::iter::once(0).chain(2..rank).chain([1]).collect();
    cx.map_with(Transpose { perm: Some(perm) }, vec![Some(x)])
}

pub(crate) fn nhwc_max_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let pool = pool(cx, PoolKind::Max)?;
    let rank = pool.kernel.len() + 2;
    let x = channels_first(cx, cx.input(0), rank);
    let y = cx.emit(pool, vec![Some(x)]);
    map_channels_last(cx, y, rank)
}

/// The weight has its channels last too.
pub(crate) fn nhwc_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kernel = cx.sizes("kernel_shape")?;
    let weight = cx.constant(1).map(|w| w.shape().dims().to_vec());
    let rank = match (weight, kernel.len()) {
        (Some(dims), n) if dims.len() > 2 => {
            if n > 0 && dims.get(1..dims.len() - 1) != Some(&kernel) {
                return Err(format!("attribute 'kernel_shape' is {kernel:?} of {dims:?}"));
            }
            dims.len()
        }
        (None, n) if n > 0 => n + 2,
        _ => return Err("the weight's rank is not known".into()),
    };
    let op = Conv {
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
    };
    let x = channels_first(cx, cx.input(0), rank);
    let w = channels_first(cx, cx.input(1), rank);
    let y = cx.emit(op, vec![Some(x), Some(w), cx.input(2)]);
    map_channels_last(cx, y, rank)
}

/// A convolution, plus input 3 where there is one, and an activation. The weight has ONNX's layout.
pub(crate) fn nhwc_fused_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 1)?;
    let weight = cx.constant(1).map(|w| w.shape().rank());
    let rank = weight.filter(|&n| n > 2).ok_or("the weight is not a constant of rank 3 or more")?;
    for i in [0, 3] {
        if cx.input(i).is_some() {
            let first = channels_first(cx, cx.input(i), rank);
            cx.inputs[i] = Some(first);
        }
    }
    let y = super::microsoft::activated_conv(cx)?;
    map_channels_last(cx, y, rank)
}

/// Inputs x, scale, shift.
pub(crate) fn group_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    normalised(cx, cx.input(0))
}

/// Inputs x, scale, shift, skip, bias (optional): the norm of `x + skip + bias`. The sum is the
/// second output.
pub(crate) fn skip_group_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    if cx.flag("channels_last")? == Some(false) {
        return Err("attribute 'channels_last' is 0, supported: 1".into());
    }
    let skip = match cx.input(3).and_then(|skip| super::ml::rank(cx, skip)) {
        Some(4) => cx.input(3),
        // One row for all pixels: `[n, c]` as `[n, 1, 1, c]`.
        Some(2) => Some(cx.emit(Unsqueeze { axes: Some(vec![1, 2]) }, vec![cx.input(3)])),
        _ => return Err("the skip's rank is not known to be 2 or 4".into()),
    };
    let mut sum = add(cx, cx.input(0), skip);
    if let Some(bias) = cx.input(4) {
        sum = add(cx, Some(sum), Some(bias));
    }
    if let Some(output) = cx.output(1) {
        cx.emit_into(Identity, vec![Some(sum)], vec![Some(output)]);
    }
    cx.outputs.truncate(1);
    normalised(cx, Some(sum))
}

fn normalised(cx: &mut NodeCx<'_>, x: Option<ValueId>) -> Result<(), Refusal> {
    let last = cx.flag("channels_last")?.unwrap_or(true);
    let groups = cx.size("groups")?.ok_or("attribute 'groups' is missing")?;
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-5);
    let silu = cx.flag("activation")?.ok_or("attribute 'activation' is missing")?;
    let x = if last { Some(channels_first(cx, x, 4)) } else { x };
    let mut y = cx.emit(GroupNorm { groups, epsilon }, vec![x, cx.input(1), cx.input(2)]);
    if silu {
        y = cx.emit(Unary::new(UnaryKind::Swish { alpha: 1. }), vec![Some(y)]);
    }
    if last { map_channels_last(cx, y, 4) } else { cx.map_with(Identity, vec![Some(y)]) }
}

/// Half of a biased row times the `Gelu` of the other half.
pub(crate) fn bias_split_gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let sum = add(cx, cx.input(0), cx.input(1));
    let split = Split { axis: -1, outputs: 2, sizes: None };
    let halves = emit_all(cx, split, vec![Some(sum)], 2);
    let [value, gate] = halves[..] else { return Err("two halves are expected".into()) };
    let gate = cx.emit(Unary::new(UnaryKind::Gelu { tanh: false }), vec![Some(gate)]);
    cx.map_with(Binary::new(BinaryKind::Mul), vec![Some(value), Some(gate)])
}
