//! Operators that run graphs.

use crate::control::{If, Loop, Scan, SequenceMap};
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};

/// The node's own inputs, and the values that its graph captures.
fn with_captured(cx: &NodeCx<'_>, captured: Vec<ValueId>) -> Vec<Option<ValueId>> {
    cx.inputs.iter().copied().chain(captured.into_iter().map(Some)).collect()
}

pub(crate) fn if_(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (then_branch, for_then) = cx.body("then_branch")?;
    let (else_branch, for_else) = cx.body("else_branch")?;
    let then_inputs = for_then.len();
    let captured = for_then.into_iter().chain(for_else).collect();
    let inputs = with_captured(cx, captured);
    cx.map_with(If { then_branch, else_branch, then_inputs }, inputs)
}

pub(crate) fn loop_(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (body, captured) = cx.body("body")?;
    let inputs = with_captured(cx, captured);
    let carried = cx.inputs.len().saturating_sub(2);
    cx.map_with(Loop { body, carried }, inputs)
}

pub(crate) fn scan(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (body, captured) = cx.body("body")?;
    let batched = cx.opset < 9;
    let backward = |flags: Option<Vec<i64>>| -> Vec<bool> {
        flags.unwrap_or_default().iter().map(|&f| f != 0).collect()
    };
    let op = Scan {
        body,
        scanned: cx.size("num_scan_inputs")?.ok_or("attribute 'num_scan_inputs' is missing")?,
        input_axes: cx.ints("scan_input_axes")?.unwrap_or_default(),
        input_backward: if batched {
            backward(cx.ints("directions")?)
        } else {
            backward(cx.ints("scan_input_directions")?)
        },
        output_axes: cx.ints("scan_output_axes")?.unwrap_or_default(),
        output_backward: backward(cx.ints("scan_output_directions")?),
        batched,
    };
    let inputs = with_captured(cx, captured);
    cx.map_with(op, inputs)
}

pub(crate) fn sequence_map(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (body, captured) = cx.body("body")?;
    let inputs = with_captured(cx, captured);
    cx.map_with(SequenceMap { body }, inputs)
}
