//! Pooling.

use super::conv::pads;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::Op;
use lgp_compute::ops::{
    Binary, BinaryKind, GlobalPool, GlobalPoolKind, MaxPoolIndices, MaxUnpool, Pool, PoolKind,
    Unary, UnaryKind,
};

pub(crate) fn max_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let column_major = cx.flag("storage_order")?.unwrap_or(false);
    let pool = pool(cx, PoolKind::Max)?;
    if cx.output(1).is_some() {
        return cx.map(MaxPoolIndices { pool, column_major });
    }
    cx.at_most_outputs(1)?;
    cx.map(pool)
}

pub(crate) fn max_unpool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op =
        MaxUnpool { kernel: kernel(cx)?, strides: cx.sizes("strides")?, pads: cx.sizes("pads")? };
    cx.map(op)
}

pub(crate) fn average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let count_include_pad = cx.flag("count_include_pad")?.unwrap_or(false);
    let pool = pool(cx, PoolKind::Average { count_include_pad })?;
    cx.map(pool)
}

pub(crate) fn lp_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let pool = pool(cx, PoolKind::Sum)?;
    lp(cx, pool)
}

pub(crate) fn global_lp_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    lp(cx, GlobalPool { kind: GlobalPoolKind::Sum })
}

/// The p-th root of a sum of p-th powers. In opset 1 p is a float.
fn lp(cx: &mut NodeCx<'_>, sum: impl Op) -> Result<(), Refusal> {
    let p = if cx.opset < 2 {
        cx.float("p")?.unwrap_or(2.)
    } else {
        u16::try_from(cx.int("p")?.unwrap_or(2))
            .map(f32::from)
            .map_err(|_| "attribute 'p' is outside 0 to 65535".to_owned())?
    };
    if p <= 0. {
        return Err(format!("attribute 'p' is {p}, expected more than 0"));
    }
    let power = Binary::new(BinaryKind::Pow);
    let size = cx.emit(Unary::new(UnaryKind::Abs), vec![cx.input(0)]);
    let exponent = cx.emit_float(p)?;
    let powers = cx.emit(power.clone(), vec![Some(size), Some(exponent)]);
    let sum = cx.emit(sum, vec![Some(powers)]);
    let exponent = cx.emit_float(1. / p)?;
    cx.map_with(power, vec![Some(sum), Some(exponent)])
}

fn kernel(cx: &mut NodeCx<'_>) -> Result<Vec<usize>, Refusal> {
    let kernel = cx.sizes("kernel_shape")?;
    if kernel.is_empty() {
        return Err("attribute 'kernel_shape' is missing".into());
    }
    Ok(kernel)
}

pub(super) fn pool(cx: &mut NodeCx<'_>, kind: PoolKind) -> Result<Pool, Refusal> {
    Ok(Pool {
        kind,
        kernel: kernel(cx)?,
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        ceil_mode: cx.flag("ceil_mode")?.unwrap_or(false),
    })
}

pub(crate) fn global_average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(GlobalPool { kind: GlobalPoolKind::Average })
}

pub(crate) fn global_max_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(GlobalPool { kind: GlobalPoolKind::Max })
}
