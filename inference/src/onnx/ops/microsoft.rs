//! The fused operators of ONNX Runtime's optimiser, taken apart again.

use super::conv;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Binary, BinaryKind, Conv, Gemm, Identity, Inverse, LayerNorm, MatMul, NGramRepeatBlock,
    RmsNorm, Transpose, Unary, UnaryKind, Unsqueeze,
};

pub(crate) fn gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    biased_gelu(cx, false)
}

/// `Gelu` by tanh, of the first input or of the sum of two.
pub(crate) fn fast_gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    biased_gelu(cx, true)
}

fn biased_gelu(cx: &mut NodeCx<'_>, tanh: bool) -> Result<(), Refusal> {
    let x = match cx.input(1) {
        Some(bias) => Some(add(cx, cx.input(0), Some(bias))),
        None => cx.input(0),
    };
    cx.map_with(Unary::new(UnaryKind::Gelu { tanh }), vec![x])
}

/// `x · sigmoid(alpha x)`
pub(crate) fn quick_gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let scale = cx.float("alpha")?.unwrap_or(1.702);
    let x = cx.input(0);
    let scaled = cx.emit(Unary::new(UnaryKind::Linear { scale, shift: 0. }), vec![x]);
    let gate = cx.emit(Unary::new(UnaryKind::Sigmoid), vec![Some(scaled)]);
    cx.map_with(Binary::new(BinaryKind::Mul), vec![x, Some(gate)])
}

/// `x + bias + skip`
pub(crate) fn bias_add(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let sum = add(cx, cx.input(0), cx.input(1));
    cx.map_with(Binary::new(BinaryKind::Add), vec![Some(sum), cx.input(2)])
}

/// Inputs x, skip, scale, shift (optional), bias (optional): the norm of `x + skip + bias`. The sum
/// is the fourth output.
pub(crate) fn skip_layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-12);
    let sum = skipped(cx, 4)?;
    let (scale, shift, y) = (cx.input(2), cx.input(3), cx.output(0));
    cx.emit_into(LayerNorm { axis: -1, epsilon }, vec![Some(sum), scale, shift], vec![y]);
    Ok(())
}

pub(crate) fn skip_rms_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-12);
    let sum = skipped(cx, 3)?;
    let (scale, y) = (cx.input(2), cx.output(0));
    cx.emit_into(RmsNorm { axis: -1, epsilon }, vec![Some(sum), scale], vec![y]);
    Ok(())
}

/// The sum of inputs 0 and 1 and, where there is one, the bias.
fn skipped(cx: &mut NodeCx<'_>, bias: usize) -> Result<ValueId, Refusal> {
    if cx.output(1).is_some() || cx.output(2).is_some() {
        return Err("outputs 1 and 2, statistics for training, are not supported".into());
    }
    let mut sum = add(cx, cx.input(0), cx.input(1));
    if let Some(bias) = cx.input(bias) {
        sum = add(cx, Some(sum), Some(bias));
    }
    if let Some(output) = cx.output(3) {
        cx.emit_into(Identity, vec![Some(sum)], vec![Some(output)]);
    }
    Ok(sum)
}

/// `alpha · a · b`. A matrix is transposed only if its rank is known. Where the batch is transposed
/// too, the rows are the first axis, before the batch.
pub(crate) fn fused_mat_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let alpha = cx.float("alpha")?.unwrap_or(1.);
    let mut sides = [cx.input(0), cx.input(1)];
    let keys = [("transA", "transBatchA"), ("transB", "transBatchB")];
    for (i, (rows, batches)) in keys.into_iter().enumerate() {
        let (rows, batches) = (cx.flag(rows)? == Some(true), cx.flag(batches)? == Some(true));
        if !rows && !batches {
            continue;
        }
        let rank = sides[i].and_then(|id| super::ml::rank(cx, id));
        let Some(rank) = rank.filter(|&r| r >= 2) else {
            return Err(format!("input {i} is transposed, but its rank is not known"));
        };
        let mut order: Vec<usize> = (0..rank).collect();
        if batches {
            order[..rank - 1].rotate_left(1);
        }
        if rows {
            order.swap(rank - 1, rank - 2);
        }
        sides[i] = Some(cx.emit(Transpose { perm: Some(order) }, vec![sides[i]]));
    }
    let product = cx.emit(MatMul, sides.to_vec());
    cx.map_with(Unary::new(UnaryKind::Linear { scale: alpha, shift: 0. }), vec![Some(product)])
}

/// `Gelu` by tanh of a product plus a bias, where there is one.
pub(crate) fn gemm_fast_gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut y = cx.emit(MatMul, vec![cx.input(0), cx.input(1)]);
    if let Some(bias) = cx.input(2) {
        y = add(cx, Some(y), Some(bias));
    }
    cx.map_with(Unary::new(UnaryKind::Gelu { tanh: true }), vec![Some(y)])
}

/// `x + bias + residual`: outside training nothing is dropped.
pub(crate) fn bias_dropout(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["seed"]);
    cx.at_most_outputs(1)?;
    let training = cx.input(4).map(|_| cx.constant(4).and_then(|t| t.as_slice::<bool>().ok()));
    if training.is_some_and(|training| !matches!(training, Some([false]))) {
        return Err("input 'training_mode' is not a constant false".into());
    }
    let sum = add(cx, cx.input(0), cx.input(1));
    match cx.input(2) {
        None => cx.map_with(Identity, vec![Some(sum)]),
        residual => cx.map_with(Binary::new(BinaryKind::Add), vec![Some(sum), residual]),
    }
}

/// Adds an axis at the position that a constant gives.
pub(crate) fn expand_dims(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.constant(1).and_then(|t| t.as_slice::<i32>().ok()?.first().copied());
    let axis = axis.ok_or("the axis is not a constant of i32")?;
    cx.map_with(Unsqueeze { axes: Some(vec![axis.into()]) }, vec![cx.input(0)])
}

/// Inputs: the tokens, and the scores of the next token.
pub(crate) fn ngram_repeat_block(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let size = cx.size("ngram_size")?.ok_or("attribute 'ngram_size' is missing")?;
    cx.map(NGramRepeatBlock { size })
}

/// A matrix without an inverse is an error of the run.
pub(crate) fn inverse(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Inverse)
}

pub(crate) fn fused_gemm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Gemm {
        alpha: cx.float("alpha")?.unwrap_or(1.),
        beta: cx.float("beta")?.unwrap_or(1.),
        trans_a: cx.flag("transA")?.unwrap_or(false),
        trans_b: cx.flag("transB")?.unwrap_or(false),
    };
    let alpha = cx.float("activation_alpha")?;
    let beta = cx.float("activation_beta")?;
    cx.ignore(&["activation_gamma"]);
    let y = cx.emit(op, cx.inputs.clone());
    let y = activated(cx, y, alpha, beta)?;
    cx.map_with(Identity, vec![Some(y)])
}

/// A convolution, plus input 3 where there is one, and an activation.
pub(crate) fn fused_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    conv::check_kernel(cx, 1)?;
    let y = activated_conv(cx)?;
    cx.map_with(Identity, vec![Some(y)])
}

pub(super) fn activated_conv(cx: &mut NodeCx<'_>) -> Result<ValueId, Refusal> {
    let op = Conv {
        strides: cx.sizes("strides")?,
        pads: conv::pads(cx)?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
    };
    let params = cx.floats("activation_params")?.unwrap_or_default();
    let mut y = cx.emit(op, vec![cx.input(0), cx.input(1), cx.input(2)]);
    if let Some(sum) = cx.input(3) {
        y = add(cx, Some(y), Some(sum));
    }
    activated(cx, y, params.first().copied(), params.get(1).copied())
}

/// A value after the node's activation.
fn activated(
    cx: &mut NodeCx<'_>,
    y: ValueId,
    alpha: Option<f32>,
    beta: Option<f32>,
) -> Result<ValueId, Refusal> {
    let kind = match cx.text("activation")?.unwrap_or("") {
        "" => return Ok(y),
        "Relu" => UnaryKind::Relu,
        "Sigmoid" => UnaryKind::Sigmoid,
        "Tanh" => UnaryKind::Tanh,
        "LeakyRelu" => UnaryKind::LeakyRelu { alpha: alpha.unwrap_or(0.01) },
        "HardSigmoid" => {
            UnaryKind::HardSigmoid { alpha: alpha.unwrap_or(0.2), beta: beta.unwrap_or(0.5) }
        }
        "Clip" => {
            let op = lgp_compute::ops::Clip { min: alpha, max: beta };
            return Ok(cx.emit(op, vec![Some(y)]));
        }
        other => {
            let all = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"];
            return Err(unsupported("activation", other, &all));
        }
    };
    Ok(cx.emit(Unary::new(kind), vec![Some(y)]))
}

pub(super) fn add(cx: &mut NodeCx<'_>, a: Option<ValueId>, b: Option<ValueId>) -> ValueId {
    cx.emit(Binary::new(BinaryKind::Add), vec![a, b])
}
