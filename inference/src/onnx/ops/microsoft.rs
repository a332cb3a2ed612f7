//! What ONNX Runtime's optimiser puts in place of several operators, taken apart again.

use super::conv;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Binary, BinaryKind, Conv, Gather, Gemm, Identity, LayerNorm, MatMul, RmsNorm, Shape, Slice,
    Transpose, Unary, UnaryKind,
};

pub(crate) fn gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    biased_gelu(cx, false)
}

/// The approximation by tanh, of a sum where there is a second input.
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

/// Inputs x, skip, scale, shift (optional), bias (optional): the norm of their sum, which is the
/// fourth output.
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

/// Inputs 0 and 1 and, where there is one, the bias.
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

/// Word, position and, where there are any, segment embeddings, summed and normalised.
pub(crate) fn embed_layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["mask_index_type"]);
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-12);
    if cx.output(1).is_some() {
        return Err("output 1, the mask's index, is not supported".into());
    }
    let gather = |cx: &mut NodeCx<'_>, table: usize, ids: Option<ValueId>| {
        let table = cx.input(table);
        cx.emit(Gather { axis: 0 }, vec![table, ids])
    };
    let words = gather(cx, 2, cx.input(0));
    let positions = match cx.input(8) {
        Some(ids) => gather(cx, 3, Some(ids)),
        None => first_rows(cx)?,
    };
    let mut sum = add(cx, Some(words), Some(positions));
    if cx.input(1).is_some() && cx.input(4).is_some() {
        let segments = gather(cx, 4, cx.input(1));
        sum = add(cx, Some(sum), Some(segments));
    }
    if let Some(output) = cx.output(2) {
        cx.emit_into(Identity, vec![Some(sum)], vec![Some(output)]);
    }
    let (scale, shift, y) = (cx.input(5), cx.input(6), cx.output(0));
    cx.emit_into(LayerNorm { axis: -1, epsilon }, vec![Some(sum), scale, shift], vec![y]);
    Ok(())
}

/// As many rows of the positions' table as a sequence is long.
fn first_rows(cx: &mut NodeCx<'_>) -> Result<ValueId, Refusal> {
    let (ids, table) = (cx.input(0), cx.input(3));
    let length = cx.emit(Shape { start: 1, end: Some(2) }, vec![ids]);
    let zero = cx.emit_ints(&[0])?;
    Ok(cx.emit(Slice::default(), vec![table, Some(zero), Some(length), Some(zero)]))
}

/// `alpha · a · b`, with matrices transposed whose rank is known.
pub(crate) fn fused_mat_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    for batches in ["transBatchA", "transBatchB"] {
        if cx.flag(batches)? == Some(true) {
            return Err(format!("attribute '{batches}' is 1, supported: 0"));
        }
    }
    let alpha = cx.float("alpha")?.unwrap_or(1.);
    let mut sides = [cx.input(0), cx.input(1)];
    for (i, key) in ["transA", "transB"].into_iter().enumerate() {
        if cx.flag(key)? != Some(true) {
            continue;
        }
        let rank = sides[i].and_then(|id| super::ml::rank(cx, id));
        let Some(rank) = rank.filter(|&r| r >= 2) else {
            return Err(format!("attribute '{key}' is 1, but the rank of input {i} is not known"));
        };
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        sides[i] = Some(cx.emit(Transpose { perm: Some(order) }, vec![sides[i]]));
    }
    let product = cx.emit(MatMul, sides.to_vec());
    cx.map_with(Unary::new(UnaryKind::Linear { scale: alpha, shift: 0. }), vec![Some(product)])
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
    activate(cx, y, alpha, beta)
}

/// A convolution, plus input 3 where there is one, and an activation.
pub(crate) fn fused_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    conv::check_kernel(cx, 1)?;
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
    activate(cx, y, params.first().copied(), params.get(1).copied())
}

/// Ends the node with its activation.
fn activate(
    cx: &mut NodeCx<'_>,
    y: ValueId,
    alpha: Option<f32>,
    beta: Option<f32>,
) -> Result<(), Refusal> {
    let kind = match cx.text("activation")?.unwrap_or("") {
        "" => return cx.map_with(Identity, vec![Some(y)]),
        "Relu" => UnaryKind::Relu,
        "Sigmoid" => UnaryKind::Sigmoid,
        "Tanh" => UnaryKind::Tanh,
        "LeakyRelu" => UnaryKind::LeakyRelu { alpha: alpha.unwrap_or(0.01) },
        "HardSigmoid" => {
            UnaryKind::HardSigmoid { alpha: alpha.unwrap_or(0.2), beta: beta.unwrap_or(0.5) }
        }
        "Clip" => {
            let op = lgp_compute::ops::Clip { min: alpha, max: beta };
            return cx.map_with(op, vec![Some(y)]);
        }
        other => {
            let all = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"];
            return Err(unsupported("activation", other, &all));
        }
    };
    cx.map_with(Unary::new(kind), vec![Some(y)])
}

pub(super) fn add(cx: &mut NodeCx<'_>, a: Option<ValueId>, b: Option<ValueId>) -> ValueId {
    cx.emit(Binary::new(BinaryKind::Add), vec![a, b])
}
