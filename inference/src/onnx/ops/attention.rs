//! Attention and what belongs to it.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{Attention, Scores};

pub(crate) fn attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The precision of the softmax; ours is never lower than f32.
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
