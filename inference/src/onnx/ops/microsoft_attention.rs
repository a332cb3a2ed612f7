//! Attention as ONNX Runtime's optimiser writes it, by means of ONNX's own.

use super::microsoft::add;
use super::ml::rank;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{Attention, Cast, Concat, Gather, MatMul, Slice, Unsqueeze, Where};
use lgp_memory::{DType, Tensor};

/// Query, key and value of rank 3, a bias for all three side by side, a mask of keys by batch, and
/// what is added to the scores.
pub(crate) fn multi_head_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let heads = cx.size("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    let op = attention(cx, heads)?;
    for i in 8..cx.inputs.len() {
        if cx.input(i).is_some() {
            return Err(format!("input {i} is not supported"));
        }
    }
    let mut parts = [cx.input(0), cx.input(1), cx.input(2)];
    if let Some(missing) = parts.iter().position(Option::is_none) {
        return Err(format!("input {missing} is missing: packed inputs are not supported"));
    }
    if let Some(bias) = cx.input(3) {
        let length = cx.constant(3).map(Tensor::len).ok_or("the bias is not a constant")?;
        let width = i64::try_from(length / 3).map_err(|_| "the bias is too long")?;
        for (i, part) in (0..).zip(&mut parts) {
            let cut = cx.emit(slice(0, i * width, (i + 1) * width), vec![Some(bias)]);
            *part = Some(add(cx, *part, Some(cut)));
        }
    }
    let mask = mask(cx, 4, 5)?;
    let [q, k, v] = parts;
    let inputs = vec![q, k, v, mask, cx.input(6), cx.input(7)];
    cx.at_most_outputs(if op.present { 3 } else { 1 })?;
    cx.map_with(op, inputs)
}

/// One input that is projected to query, key and value.
pub(crate) fn packed_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let heads = cx.size("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    if cx.flag("do_rotary")? == Some(true) {
        return Err("attribute 'do_rotary' is 1, supported: 0".into());
    }
    let weight = cx.constant(1).map(|w| w.shape().dims().to_vec());
    let columns = match weight.as_deref() {
        Some([_, columns]) => i64::try_from(*columns).map_err(|_| "the weight is too large")?,
        _ => return Err("the weight is not a constant matrix".into()),
    };
    let widths = cx.ints("qkv_hidden_sizes")?.unwrap_or_else(|| vec![columns / 3; 3]);
    let mut op = attention(cx, heads)?;
    let mut qkv = cx.emit(MatMul, vec![cx.input(0), cx.input(1)]);
    if let Some(bias) = cx.input(2) {
        qkv = add(cx, Some(qkv), Some(bias));
    }
    let mut parts = Vec::with_capacity(3);
    let mut from = 0i64;
    for width in widths.iter().take(3) {
        let to = from.saturating_add(*width);
        parts.push(Some(cx.emit(slice(-1, from, to), vec![Some(qkv)])));
        from = to;
    }
    if parts.len() != 3 || from != columns {
        return Err(format!("widths {widths:?} do not make up the weight's {columns} columns"));
    }
    let mask = mask(cx, 3, 5)?;
    // Past and present are key and value in one tensor.
    let mut past = [None, None];
    if let Some(both) = cx.input(4) {
        for (i, past) in (0i64..).zip(&mut past) {
            let index = cx.emit_constant(Tensor::scalar(i).map_err(|e| e.to_string())?);
            *past = Some(cx.emit(Gather { axis: 0 }, vec![Some(both), Some(index)]));
        }
    }
    let (y, present) = (cx.output(0), cx.output(1));
    op.present = present.is_some();
    parts.extend([mask, past[0], past[1]]);
    let Some(present) = present else {
        cx.emit_into(op, parts, vec![y]);
        return Ok(());
    };
    let name = cx.node.name.clone();
    let [k, v] = ["key", "value"].map(|what| cx.graph.add_value(format!("{name}.{what}")));
    cx.emit_into(op, parts, vec![y, Some(k), Some(v)]);
    let [k, v] = [k, v].map(|x| Some(cx.emit(Unsqueeze { axes: Some(vec![0]) }, vec![Some(x)])));
    cx.emit_into(Concat { axis: 0 }, vec![k, v], vec![Some(present)]);
    Ok(())
}

fn attention(cx: &mut NodeCx<'_>, heads: usize) -> Result<Attention, Refusal> {
    // What masked scores become; ours have no weight at all.
    cx.ignore(&["mask_filter_value"]);
    Ok(Attention {
        causal: cx.flag("unidirectional")?.unwrap_or(false),
        // 0 stands for the default.
        scale: cx.float("scale")?.filter(|s| *s != 0.),
        query_heads: Some(heads),
        key_heads: Some(heads),
        present: cx.output(1).is_some() || cx.output(2).is_some(),
        ..Attention::default()
    })
}

/// A mask of keys, `[batch, keys]`, and what is added to scores, as one mask.
fn mask(cx: &mut NodeCx<'_>, keys: usize, bias: usize) -> Result<Option<ValueId>, Refusal> {
    let bias = cx.input(bias);
    let Some(keys) = cx.input(keys) else { return Ok(bias) };
    match rank(cx, keys) {
        Some(2) => {}
        Some(rank) => return Err(format!("a mask of rank {rank} is not supported, expected 2")),
        None => return Err("the mask's rank is not known, expected 2".into()),
    }
    let keys = cx.emit(Cast { to: DType::Bool }, vec![Some(keys)]);
    let keys = cx.emit(Unsqueeze { axes: Some(vec![1, 2]) }, vec![Some(keys)]);
    let Some(bias) = bias else { return Ok(Some(keys)) };
    let none = cx.emit_float(f32::NEG_INFINITY)?;
    Ok(Some(cx.emit(Where, vec![Some(keys), Some(bias), Some(none)])))
}

fn slice(axis: i64, from: i64, to: i64) -> Slice {
    Slice { starts: Some(vec![from]), ends: Some(vec![to]), axes: Some(vec![axis]), steps: None }
}
