//! The attention of ONNX Runtime's optimiser, mapped to ONNX's own attention.

use super::microsoft::add;
use super::ml::rank;
use super::quantized_microsoft::integer_product;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Attention, AttentionMask, Cast, Concat, Gather, MatMul, RelativePositionBias, Scores, Slice,
    Unsqueeze,
};
use lgp_memory::{DType, Tensor};

/// Inputs: query, key and value of rank 3, one bias with the parts of all three, a mask of keys,
/// and a bias of the scores. Key and value of rank 4 come from an encoder, with an axis of heads.
pub(crate) fn multi_head_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut op = attention(cx)?;
    if (8..cx.inputs.len()).any(|i| cx.input(i).is_some()) {
        return Err("inputs 8 and 9, of a shared buffer, are not supported".into());
    }
    let mut parts = [cx.input(0), cx.input(1), cx.input(2)];
    if let Some(missing) = parts.iter().position(Option::is_none) {
        return Err(format!("input {missing} is missing: packed inputs are not supported"));
    }
    biased(cx, &mut parts, 3)?;
    let mask = mask(cx, 4, [parts[0], parts[1], cx.input(6)], Some(5))?;
    if cx.output(3).is_some() {
        if op.causal {
            return Err("output 3 with attribute 'unidirectional' is not supported".into());
        }
        op.scores = Some(Scores::Masked);
    }
    let [q, k, v] = parts;
    let inputs = vec![q, k, v, mask, cx.input(6), cx.input(7)];
    op.present = cx.output(1).is_some() || cx.output(2).is_some();
    cx.at_most_outputs(if op.scores.is_some() { 4 } else { 1 + 2 * usize::from(op.present) })?;
    cx.map_with(op, inputs)
}

/// Inputs a table of biases by distance, and the numbers of queries and keys.
pub(crate) fn relative_position_bias(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let far = cx.size("max_distance")?.ok_or("attribute 'max_distance' is missing")?;
    let bidirectional = cx.flag("is_bidirectional")?.unwrap_or(false);
    cx.map(RelativePositionBias { bidirectional, far })
}

/// Adds the parts of a bias to query, key and value.
fn biased(
    cx: &mut NodeCx<'_>,
    parts: &mut [Option<ValueId>; 3],
    bias: usize,
) -> Result<(), Refusal> {
    let Some(bias_id) = cx.input(bias) else { return Ok(()) };
    let length = cx.constant(bias).map(Tensor::len).ok_or("the bias is not a constant")?;
    // Query and key have the same width. Where the graph does not tell it, the value has it too.
    let width = parts[..2].iter().flatten().find_map(|&x| {
        let dims = &cx.graph.info(x)?.ty.shape.as_ref()?.0;
        if dims.len() == 3 { dims[2].known() } else { None }
    });
    let width = width.unwrap_or(length / 3).min(length / 2);
    let cuts = [(0, width), (width, 2 * width), (2 * width, length)];
    // Key and value of an encoder have their bias already.
    let encoded = parts[1].is_some_and(|key| rank(cx, key) == Some(4));
    let biased = if encoded { 1 } else { 3 };
    for (part, (from, to)) in parts.iter_mut().zip(cuts).take(biased) {
        let [from, to] = [from, to].map(|n| i64::try_from(n).map_err(|_| "the bias is too long"));
        let cut = cx.emit(slice(0, from?, to?), vec![Some(bias_id)]);
        *part = Some(add(cx, *part, Some(cut)));
    }
    Ok(())
}

/// One input that is projected to query, key and value.
pub(crate) fn packed_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut qkv = cx.emit(MatMul, vec![cx.input(0), cx.input(1)]);
    if let Some(bias) = cx.input(2) {
        qkv = add(cx, Some(qkv), Some(bias));
    }
    if cx.input(6).is_some() {
        return Err("input 6, the length of a shared buffer, is not supported".into());
    }
    let widths = cx.ints("qkv_hidden_sizes")?;
    projected(cx, qkv, widths, 3, 4, Some(5))
}

/// [`packed_attention`] with an input and a weight of bytes.
pub(crate) fn quantized_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let operands = [cx.input(0), cx.input(1), cx.input(6), cx.input(7)];
    let scales = [cx.input(3), cx.input(4)];
    let product = integer_product(cx, operands, scales);
    let qkv = add(cx, Some(product), cx.input(2));
    projected(cx, qkv, None, 5, 8, None)
}

/// Attention of a projection; mask, past and bias are given as numbers of inputs.
fn projected(
    cx: &mut NodeCx<'_>,
    qkv: ValueId,
    widths: Option<Vec<i64>>,
    mask_input: usize,
    past: usize,
    bias: Option<usize>,
) -> Result<(), Refusal> {
    for key in ["do_rotary", "past_present_share_buffer"] {
        if cx.flag(key)? == Some(true) {
            return Err(format!("attribute '{key}' is 1, supported: 0"));
        }
    }
    // An attribute of the rotation, which is refused above.
    cx.ignore(&["rotary_embedding_dim"]);
    let weight = cx.constant(1).map(|w| w.shape().dims().to_vec());
    let columns = match weight.as_deref() {
        Some([_, columns]) => i64::try_from(*columns).map_err(|_| "the weight is too large")?,
        _ => return Err("the weight is not a constant matrix".into()),
    };
    let widths = widths.unwrap_or_else(|| vec![columns / 3; 3]);
    let mut op = attention(cx)?;
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
    // Past and present each hold key and value in one tensor.
    let mut pasts = [None, None];
    if let Some(both) = cx.input(past) {
        for (i, past) in (0i64..).zip(&mut pasts) {
            let index = cx.emit_constant(Tensor::scalar(i).map_err(|e| e.to_string())?);
            *past = Some(cx.emit(Gather { axis: 0 }, vec![Some(both), Some(index)]));
        }
    }
    let mask = mask(cx, mask_input, [parts[0], parts[1], pasts[0]], bias)?;
    let (y, present) = (cx.output(0), cx.output(1));
    op.present = present.is_some();
    parts.extend([mask, pasts[0], pasts[1]]);
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

fn attention(cx: &mut NodeCx<'_>) -> Result<Attention, Refusal> {
    let heads = cx.size("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    Ok(Attention {
        causal: cx.flag("unidirectional")?.unwrap_or(false),
        // 0 stands for the default.
        scale: cx.float("scale")?.filter(|s| *s != 0.),
        query_heads: Some(heads),
        key_heads: Some(heads),
        ..Attention::default()
    })
}

/// The mask of keys and the bias of scores as one mask. `parts` are query, key and past keys.
fn mask(
    cx: &mut NodeCx<'_>,
    keys: usize,
    parts: [Option<ValueId>; 3],
    bias: Option<usize>,
) -> Result<Option<ValueId>, Refusal> {
    let hidden = cx.float("mask_filter_value")?.unwrap_or(-10000.);
    let bias = bias.and_then(|bias| cx.input(bias));
    let Some(keys) = cx.input(keys) else { return Ok(bias) };
    let [query, key, past] = parts;
    let mask = cx.emit(AttentionMask { hidden }, vec![Some(keys), query, key, past]);
    let Some(bias) = bias else { return Ok(Some(mask)) };
    let bias = cx.emit(Cast { to: DType::F32 }, vec![Some(bias)]);
    Ok(Some(add(cx, Some(mask), Some(bias))))
}

fn slice(axis: i64, from: i64, to: i64) -> Slice {
    Slice { starts: Some(vec![from]), ends: Some(vec![to]), axes: Some(vec![axis]), steps: None }
}
