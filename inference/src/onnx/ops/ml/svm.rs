//! Support vector machines.

use super::{classes, floats, labels, post_transform};
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, ClassRule, ClassScores, Gather, Gemm, PostTransform, Slice, Svm,
    SvmDecision, SvmKernel,
};
use lgp_memory::{DType, Tensor};

fn kernel(cx: &mut NodeCx<'_>) -> Result<SvmKernel, Refusal> {
    let given = cx.floats("kernel_params")?.unwrap_or_default();
    let [gamma, offset, degree] = match *given.as_slice() {
        [] => [0., 0., 3.],
        [gamma, offset, degree] => [gamma, offset, degree],
        _ => return Err(format!("{} kernel parameters, expected 3", given.len())),
    };
    Ok(match cx.text("kernel_type")?.unwrap_or("LINEAR") {
        "LINEAR" => SvmKernel::Linear,
        "POLY" => SvmKernel::Poly { gamma, offset, degree },
        "RBF" => SvmKernel::Rbf { gamma },
        "SIGMOID" => SvmKernel::Sigmoid { gamma, offset },
        other => {
            return Err(unsupported("kernel_type", other, &["LINEAR", "POLY", "RBF", "SIGMOID"]));
        }
    })
}

pub(crate) fn svm_regressor(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kernel = kernel(cx)?;
    let post = post_transform(cx)?;
    let one_class = cx.flag("one_class")?.unwrap_or(false);
    let count = cx.size("n_supports")?.unwrap_or(0);
    let coefficients = cx.floats("coefficients")?.unwrap_or_default();
    let vectors = cx.floats("support_vectors")?.unwrap_or_default();
    let rho = cx.floats("rho")?.unwrap_or_default();
    let x = floats(cx);
    // Without support vectors there is one coefficient per feature: they are one linear vector.
    let (vectors, count, coefficients) =
        if count == 0 { (coefficients, 1, vec![1.]) } else { (vectors, count, coefficients) };
    let op = Svm::new(kernel, SvmDecision::Regression, vectors, count, coefficients, rho);
    let raw = cx.emit(op.map_err(|e| e.to_string())?, vec![Some(x)]);
    if !one_class {
        let y = cx.output(0);
        let op = ClassScores { rule: ClassRule::Highest, post };
        cx.emit_into(op, vec![Some(raw)], vec![None, y]);
        return Ok(());
    }
    // Inside the class is 1, outside is -1.
    let zero = cx.emit_float(0.)?;
    let inside = cx.emit(Binary::new(BinaryKind::Greater), vec![Some(raw), Some(zero)]);
    let index = cx.emit(Cast { to: DType::I64 }, vec![Some(inside)]);
    let sides = super::vector(cx, &[-1., 1.])?;
    cx.map_with(Gather { axis: 0 }, vec![Some(sides), Some(index)])
}

pub(crate) fn svm_classifier(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let labels = labels(cx, "classlabels_ints")?;
    let kernel = kernel(cx)?;
    let post = post_transform(cx)?;
    let counts = cx.sizes("vectors_per_class")?;
    let coefficients = cx.floats("coefficients")?.unwrap_or_default();
    let vectors = cx.floats("support_vectors")?.unwrap_or_default();
    let rho = cx.floats("rho")?.unwrap_or_default();
    let slopes = cx.floats("prob_a")?.unwrap_or_default();
    let offsets = cx.floats("prob_b")?.unwrap_or_default();
    let x = floats(cx);
    if counts.is_empty() {
        return linear(cx, x, &coefficients, &rho, post, labels);
    }
    if counts.len() != labels.len() {
        return Err(format!("vectors of {} classes for {} labels", counts.len(), labels.len()));
    }
    let count = counts.iter().try_fold(0usize, |n, &c| n.checked_add(c));
    let count = count.ok_or("too many support vectors")?;
    let classes_count = counts.len();
    let pairs = SvmDecision::Pairs(counts.clone());
    let svm = |decision| {
        let (v, c, r) = (vectors.clone(), coefficients.clone(), rho.clone());
        Svm::new(kernel, decision, v, count, c, r).map_err(|e| e.to_string())
    };
    let votes_op = svm(pairs)?;
    let pairs = i64::try_from(classes_count * (classes_count - 1) / 2).unwrap_or(0);
    let all = cx.emit(votes_op, vec![Some(x)]);
    let part = |from: i64, to: i64| Slice {
        starts: Some(vec![from]),
        ends: Some(vec![to]),
        axes: Some(vec![1]),
        steps: None,
    };
    // The label is the class with most votes, also where scores are probabilities.
    let votes = cx.emit(part(pairs, i64::MAX), vec![Some(all)]);
    let (label, scores) = (cx.output(0), cx.output(1));
    cx.outputs = vec![label, None];
    classes(cx, votes, ClassRule::Highest, PostTransform::None, labels);
    if slopes.is_empty() {
        let raw = cx.emit(part(0, pairs), vec![Some(all)]);
        let rule = if pairs == 1 {
            ClassRule::Above { threshold: 0., probability: post != PostTransform::None }
        } else {
            ClassRule::Highest
        };
        cx.emit_into(ClassScores { rule, post }, vec![Some(raw)], vec![None, scores]);
    } else {
        let op = svm(SvmDecision::Probabilities { counts, slopes, offsets })?;
        let raw = cx.emit(op, vec![Some(x)]);
        let op = ClassScores { rule: ClassRule::Highest, post };
        cx.emit_into(op, vec![Some(raw)], vec![None, scores]);
    }
    Ok(())
}

/// A linear machine: a row of coefficients for each class.
fn linear(
    cx: &mut NodeCx<'_>,
    x: crate::graph::ValueId,
    coefficients: &[f32],
    rho: &[f32],
    post: PostTransform,
    labels: Tensor,
) -> Result<(), Refusal> {
    let count = labels.len();
    if !coefficients.len().is_multiple_of(count) || rho.is_empty() {
        return Err(format!("{} coefficients for {count} classes", coefficients.len()));
    }
    let weights = Tensor::from_slice([count, coefficients.len() / count], coefficients);
    let weights = cx.emit_constant(weights.map_err(|e| e.to_string())?);
    // One offset serves all classes.
    let bias = super::vector(cx, &rho[..1])?;
    let gemm = Gemm { alpha: 1., beta: 1., trans_a: false, trans_b: true };
    let raw = cx.emit(gemm, vec![Some(x), Some(weights), Some(bias)]);
    classes(cx, raw, ClassRule::Highest, post, labels);
    Ok(())
}
