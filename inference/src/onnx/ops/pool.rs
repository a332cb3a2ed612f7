//! Pooling.

use super::conv::pads;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{GlobalPool, GlobalPoolKind, Pool, PoolKind};

pub(crate) fn max_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The order of the indices of the second output, which is not supported.
    cx.ignore(&["storage_order"]);
    pool(cx, PoolKind::Max)
}

pub(crate) fn average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let count_include_pad = cx.flag("count_include_pad")?.unwrap_or(false);
    pool(cx, PoolKind::Average { count_include_pad })
}

fn pool(cx: &mut NodeCx<'_>, kind: PoolKind) -> Result<(), Refusal> {
    cx.at_most_outputs(1)?;
    let kernel = cx.sizes("kernel_shape")?;
    if kernel.is_empty() {
        return Err("attribute 'kernel_shape' is missing".into());
    }
    let op = Pool {
        kind,
        kernel,
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        ceil_mode: cx.flag("ceil_mode")?.unwrap_or(false),
    };
    cx.map(op)
}

pub(crate) fn global_average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(GlobalPool { kind: GlobalPoolKind::Average })
}

pub(crate) fn global_max_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(GlobalPool { kind: GlobalPoolKind::Max })
}
