//! Linear models.

use super::{classes, floats, labels, post_transform, vector};
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{ClassRule, ClassScores, Gemm};
use lgp_memory::Tensor;

pub(crate) fn linear_regressor(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let targets = cx.size("targets")?.unwrap_or(1);
    let post = post_transform(cx)?;
    let raw = scores(cx, targets)?;
    cx.at_most_outputs(1)?;
    let y = cx.output(0);
    cx.emit_into(ClassScores { rule: ClassRule::Highest, post }, vec![Some(raw)], vec![None, y]);
    Ok(())
}

pub(crate) fn linear_classifier(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // How the model was trained changes nothing about what it computes.
    cx.ignore(&["multi_class"]);
    let labels = labels(cx, "classlabels_ints")?;
    let post = post_transform(cx)?;
    let rows = cx.floats("intercepts")?.map_or(labels.len(), |v| v.len());
    let rule = match (rows, labels.len()) {
        (1, 2) => ClassRule::Above { threshold: 0., probability: true },
        (a, b) if a == b => ClassRule::Highest,
        (a, b) => return Err(format!("{a} intercepts for {b} classes")),
    };
    let raw = scores(cx, rows)?;
    classes(cx, raw, rule, post, labels);
    Ok(())
}

/// `x · coefficientsᵀ + intercepts` as `[rows, count]`.
fn scores(cx: &mut NodeCx<'_>, count: usize) -> Result<ValueId, Refusal> {
    let coefficients = cx.floats("coefficients")?.ok_or("attribute 'coefficients' is missing")?;
    let intercepts = cx.floats("intercepts")?;
    if count == 0 || coefficients.len() % count != 0 {
        return Err(format!("{} coefficients for {count} scores", coefficients.len()));
    }
    if let Some(given) = intercepts.as_ref().map(Vec::len).filter(|&n| n != count) {
        return Err(format!("{given} intercepts for {count} scores"));
    }
    let x = floats(cx);
    let weights = Tensor::from_slice([count, coefficients.len() / count], &coefficients);
    let weights = cx.emit_constant(weights.map_err(|e| e.to_string())?);
    let bias = intercepts.map(|v| vector(cx, &v)).transpose()?;
    let gemm = Gemm { alpha: 1., beta: 1., trans_a: false, trans_b: true };
    Ok(cx.emit(gemm, vec![Some(x), Some(weights), bias]))
}
