//! Reductions, softmax among them.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{ArgKind, ArgReduce, Reduce, ReduceKind, Softmax, Unary, UnaryKind};

macro_rules! reductions {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            let op = reduce(cx, ReduceKind::$kind)?;
            cx.map(op)
        }
    )* };
}
reductions!(
    l1 => L1, l2 => L2, log_sum_exp => LogSumExp, max => Max, mean => Mean, min => Min,
    prod => Prod, sum => Sum, sum_square => SumSquare,
);

pub(crate) fn log_sum(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = reduce(cx, ReduceKind::Sum)?;
    let sum = cx.emit(op, cx.inputs.clone());
    cx.map_with(Unary::new(UnaryKind::Log), vec![Some(sum)])
}

/// The axes were an attribute before they became an input (opset 13 for sums, 18 for the others).
fn reduce(cx: &mut NodeCx<'_>, kind: ReduceKind) -> Result<Reduce, Refusal> {
    Ok(Reduce {
        kind,
        axes: cx.ints("axes")?,
        keep_dims: cx.flag("keepdims")?.unwrap_or(true),
        noop_with_empty_axes: cx.flag("noop_with_empty_axes")?.unwrap_or(false),
    })
}

pub(crate) fn arg_max(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    arg(cx, ArgKind::Max)
}

pub(crate) fn arg_min(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    arg(cx, ArgKind::Min)
}

fn arg(cx: &mut NodeCx<'_>, kind: ArgKind) -> Result<(), Refusal> {
    let op = ArgReduce {
        kind,
        axis: cx.int("axis")?.unwrap_or(0),
        keep_dims: cx.flag("keepdims")?.unwrap_or(true),
        select_last_index: cx.flag("select_last_index")?.unwrap_or(false),
    };
    cx.map(op)
}

pub(crate) fn softmax(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    any_softmax(cx, false)
}

pub(crate) fn log_softmax(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    any_softmax(cx, true)
}

fn any_softmax(cx: &mut NodeCx<'_>, log: bool) -> Result<(), Refusal> {
    let flatten = cx.opset < 13;
    let axis = cx.int("axis")?.unwrap_or(if flatten { 1 } else { -1 });
    cx.map(Softmax { axis, log, flatten })
}
