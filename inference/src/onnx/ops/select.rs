//! Operators that pick, place or order elements by indices and conditions.

use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    BitCast, Compress, Cumulative, EyeLike, GatherElements, GatherNd, Hardmax, NonZero, OneHot,
    ReverseSequence, ScatterElements, ScatterNd, ScatterReduction, TopK, Trilu, Unique,
};

pub(crate) fn gather_elements(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(0);
    cx.map(GatherElements { axis })
}

pub(crate) fn gather_nd(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let batch_dims = cx.size("batch_dims")?.unwrap_or(0);
    cx.map(GatherNd { batch_dims })
}

pub(crate) fn scatter_elements(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = ScatterElements { axis: cx.int("axis")?.unwrap_or(0), reduction: reduction(cx)? };
    cx.map(op)
}

/// The name of `ScatterElements` before opset 11.
pub(crate) fn scatter(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(0);
    cx.map(ScatterElements { axis, reduction: ScatterReduction::None })
}

pub(crate) fn scatter_nd(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let reduction = reduction(cx)?;
    cx.map(ScatterNd { reduction })
}

fn reduction(cx: &mut NodeCx<'_>) -> Result<ScatterReduction, Refusal> {
    match cx.text("reduction")?.unwrap_or("none") {
        "none" => Ok(ScatterReduction::None),
        "add" => Ok(ScatterReduction::Add),
        "mul" => Ok(ScatterReduction::Mul),
        "min" => Ok(ScatterReduction::Min),
        "max" => Ok(ScatterReduction::Max),
        other => Err(unsupported("reduction", other, &["none", "add", "mul", "min", "max"])),
    }
}

/// `k` was an attribute before opset 10.
pub(crate) fn top_k(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The result is always sorted, also where the node does not need that.
    cx.ignore(&["sorted"]);
    let op = TopK {
        axis: cx.int("axis")?.unwrap_or(-1),
        largest: cx.flag("largest")?.unwrap_or(true),
        k: cx.int("k")?,
    };
    cx.map(op)
}

pub(crate) fn unique(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Unique { axis: cx.int("axis")?, sorted: cx.flag("sorted")?.unwrap_or(true) };
    cx.map(op)
}

pub(crate) fn non_zero(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(NonZero)
}

pub(crate) fn one_hot(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(-1);
    cx.map(OneHot { axis })
}

pub(crate) fn cum_sum(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cumulative(cx, false)
}

pub(crate) fn cum_prod(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cumulative(cx, true)
}

fn cumulative(cx: &mut NodeCx<'_>, product: bool) -> Result<(), Refusal> {
    let exclusive = cx.flag("exclusive")?.unwrap_or(false);
    let reverse = cx.flag("reverse")?.unwrap_or(false);
    cx.map(Cumulative { product, exclusive, reverse })
}

pub(crate) fn trilu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let upper = cx.flag("upper")?.unwrap_or(true);
    cx.map(Trilu { upper })
}

pub(crate) fn eye_like(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let dtype = match cx.int("dtype")? {
        None => None,
        Some(code) => Some(element_type("dtype", code)?),
    };
    let k = cx.int("k")?.unwrap_or(0);
    cx.map(EyeLike { dtype, k })
}

/// The dtype whose ONNX number an attribute holds.
pub(crate) fn element_type(key: &str, code: i64) -> Result<lgp_memory::DType, Refusal> {
    dtype::from_onnx(code)
        .map_err(|given| format!("attribute '{key}' is {given}, which is not supported"))
}

pub(crate) fn compress(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?;
    cx.map(Compress { axis })
}

pub(crate) fn reverse_sequence(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (time, batch) = (cx.int("time_axis")?.unwrap_or(0), cx.int("batch_axis")?.unwrap_or(1));
    let time_first = match (time, batch) {
        (0, 1) => true,
        (1, 0) => false,
        _ => return Err(format!("time axis {time} and batch axis {batch}, expected 0 and 1")),
    };
    cx.map(ReverseSequence { time_first })
}

pub(crate) fn bit_cast(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(code) = cx.int("to")? else {
        return Err("attribute 'to' is missing".into());
    };
    let to = element_type("to", code)?;
    cx.map(BitCast { to })
}

/// Before opset 13 all axes from `axis` on were taken as one.
pub(crate) fn hardmax(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let flatten = cx.opset < 13;
    let axis = cx.int("axis")?.unwrap_or(if flatten { 1 } else { -1 });
    cx.map(Hardmax { axis, flatten })
}
