//! Attention, linear attention, rotary embeddings and causal convolutions.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Attention, CausalConv, LinearAttention, RotaryEmbedding, Scores, Unary, UnaryKind,
};

pub(crate) fn attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The precision of the softmax, which is never lower than f32 here.
    cx.ignore(&["softmax_precision"]);
    let scores = match cx.int("qk_matmul_output_mode")?.unwrap_or(0) {
        0 => Scores::Raw,
        1 => Scores::Capped,
        2 => Scores::Masked,
        3 => Scores::Softmax,
        mode => {
            return Err(format!("attribute 'qk_matmul_output_mode' is {mode}, expected 0 to 3"));
        }
    };
    let op = Attention {
        causal: cx.flag("is_causal")?.unwrap_or(false),
        scale: cx.float("scale")?,
        softcap: cx.float("softcap")?.unwrap_or(0.),
        query_heads: cx.size("q_num_heads")?,
        key_heads: cx.size("kv_num_heads")?,
        present: cx.output(1).is_some() || cx.output(2).is_some(),
        scores: cx.output(3).map(|_| scores),
    };
    cx.at_most_outputs(if op.scores.is_some() { 4 } else { 1 + 2 * usize::from(op.present) })?;
    cx.map(op)
}

pub(crate) fn rotary_embedding(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = RotaryEmbedding {
        interleaved: cx.flag("interleaved")?.unwrap_or(false),
        heads: cx.size("num_heads")?,
        rotated: cx.size("rotary_embedding_dim")?.unwrap_or(0),
    };
    cx.map(op)
}

pub(crate) fn linear_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The chunks in which other engines run long sequences: they do not change the result.
    cx.ignore(&["chunk_size"]);
    let (gated, delta) = match cx.text("update_rule")?.unwrap_or("gated_delta") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            let known = ["linear", "gated", "delta", "gated_delta"];
            return Err(unsupported("update_rule", other, &known));
        }
    };
    let heads = |count: Option<usize>, key| count.ok_or(format!("attribute '{key}' is missing"));
    let op = LinearAttention {
        query_heads: heads(cx.size("q_num_heads")?, "q_num_heads")?,
        key_heads: heads(cx.size("kv_num_heads")?, "kv_num_heads")?,
        scale: cx.float("scale")?.filter(|&scale| scale != 0.),
        gated,
        delta,
    };
    cx.map(op)
}

pub(crate) fn causal_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let swish = match cx.text("activation")?.unwrap_or("none") {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(unsupported("activation", other, &["none", "silu", "swish"])),
    };
    if !swish {
        return cx.map(CausalConv);
    }
    let y = cx.output(0);
    let inner = cx.graph.add_value(format!("{}.inner", cx.node.name));
    let state = cx.output(1);
    cx.emit_into(CausalConv, cx.inputs.clone(), vec![Some(inner), state]);
    let swish = Unary::new(UnaryKind::Swish { alpha: 1. });
    cx.emit_into(swish, vec![Some(inner)], vec![y]);
    Ok(())
}
