//! Attention with grouped keys and a cache, and rotation by positions, as generators of language
//! models write them for ONNX Runtime.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{GroupQueryAttention, RotaryEmbedding};

pub(crate) fn group_query_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut heads = |key| cx.size(key)?.ok_or_else(|| format!("attribute '{key}' is missing"));
    let (heads, key_heads) = (heads("num_heads")?, heads("kv_num_heads")?);
    for key in ["kv_cache_bit_width", "qk_output", "sliding_window_cache"] {
        if let Some(given) = cx.int(key)?.filter(|&n| n != 0) {
            return Err(format!("attribute '{key}' is {given}, supported: 0"));
        }
    }
    for key in ["k_quant_type", "v_quant_type"] {
        if let Some(given) = cx.text(key)?.filter(|given| *given != "NONE") {
            return Err(unsupported(key, given, &["NONE"]));
        }
    }
    // An attribute of a norm, whose weights (inputs 14 and 15) are refused below.
    cx.ignore(&["qk_norm_epsilon"]);
    if let Some(given) = (12..cx.inputs.len()).find(|&i| cx.input(i).is_some()) {
        return Err(format!("input {given} is not supported"));
    }
    let causal = cx.flag("causal")?.unwrap_or(true);
    let window = match cx.int("local_window_size")?.unwrap_or(-1) {
        -1 => None,
        n if n > 0 && causal => usize::try_from(n).ok(),
        n => return Err(format!("attribute 'local_window_size' is {n}, causal {causal}")),
    };
    let op = GroupQueryAttention {
        heads,
        key_heads,
        causal,
        // 0 stands for the default.
        scale: cx.float("scale")?.filter(|s| *s != 0.),
        softcap: cx.float("softcap")?.unwrap_or(0.),
        window,
        rotary: cx.flag("do_rotary")?.unwrap_or(false),
        interleaved: cx.flag("rotary_interleaved")?.unwrap_or(false),
        smooth: cx.flag("smooth_softmax")?.unwrap_or(false),
    };
    cx.at_most_outputs(3)?;
    let inputs = cx.inputs.iter().copied().take(12).collect();
    let outputs = vec![cx.output(0), cx.output(1), cx.output(2)];
    cx.emit_into(op, inputs, outputs);
    Ok(())
}

/// Inputs x, positions, cosines, sines.
pub(crate) fn rotary_embedding(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // ONNX Runtime's CPU kernel ignores `scale`; `is_packed_batching` tells which positions occur.
    if let Some(scale) = cx.float("scale")?.filter(|s| *s != 1.) {
        return Err(format!("attribute 'scale' is {scale}, supported: 1"));
    }
    cx.ignore(&["is_packed_batching"]);
    let op = RotaryEmbedding {
        interleaved: cx.flag("interleaved")?.unwrap_or(false),
        // With 0 the cosines tell the number of heads.
        heads: cx.size("num_heads")?.filter(|&heads| heads > 0),
        rotated: cx.size("rotary_embedding_dim")?.unwrap_or(0),
    };
    let inputs = vec![cx.input(0), cx.input(2), cx.input(3), cx.input(1)];
    cx.map_with(op, inputs)
}
