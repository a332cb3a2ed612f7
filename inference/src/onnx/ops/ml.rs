//! Operators of classical machine learning, `ai.onnx.ml`. Scores are f32, whatever goes in.

mod features;
mod labels;
mod linear;
mod maps;
mod svm;
#[cfg(test)]
mod tests;
mod tree;
mod tree_parts;

pub(crate) use features::{
    array_feature_extractor, binarizer, feature_vectorizer, imputer, normalizer, one_hot_encoder,
    scaler,
};
pub(crate) use labels::{category_mapper, label_encoder};
pub(crate) use linear::{linear_classifier, linear_regressor};
pub(crate) use maps::{cast_map, dict_vectorizer, zip_map};
pub(crate) use svm::{svm_classifier, svm_regressor};
pub(crate) use tree::{tree_ensemble, tree_ensemble_classifier, tree_ensemble_regressor};

use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{Cast, ClassRule, ClassScores, Gather, PostTransform};
use lgp_memory::{DType, SymShape, Tensor};

/// The attribute `post_transform`.
fn post_transform(cx: &mut NodeCx<'_>) -> Result<PostTransform, Refusal> {
    Ok(match cx.text("post_transform")?.unwrap_or("NONE") {
        "NONE" => PostTransform::None,
        "SOFTMAX" => PostTransform::Softmax,
        "LOGISTIC" => PostTransform::Logistic,
        "SOFTMAX_ZERO" => PostTransform::SoftmaxZero,
        "PROBIT" => PostTransform::Probit,
        other => {
            let all = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
            return Err(unsupported("post_transform", other, &all));
        }
    })
}

/// The classes' labels, integers or strings, from the attribute that the node has; `ints` names the
/// one of integers, which differs between operators.
fn labels(cx: &mut NodeCx<'_>, ints: &'static str) -> Result<Tensor, Refusal> {
    let labels = cx.ints(ints)?.unwrap_or_default();
    let texts = cx.texts("classlabels_strings")?;
    match (labels.is_empty(), texts.is_empty()) {
        (false, true) => {}
        (true, false) => {
            return Tensor::from_strings([texts.len()], texts).map_err(|e| e.to_string());
        }
        _ => return Err(format!("expected either '{ints}' or 'classlabels_strings'")),
    }
    Tensor::from_slice([labels.len()], &labels).map_err(|e| e.to_string())
}

/// Ends a classifier with the label of each row's class, and the scores.
fn classes(
    cx: &mut NodeCx<'_>,
    raw: ValueId,
    rule: ClassRule,
    post: PostTransform,
    labels: Tensor,
) {
    let index = cx.graph.add_value(format!("{}.class", cx.node.name));
    let (label, scores) = (cx.output(0), cx.output(1));
    cx.emit_into(ClassScores { rule, post }, vec![Some(raw)], vec![Some(index), scores]);
    if label.is_some() {
        let labels = cx.emit_constant(labels);
        cx.emit_into(Gather { axis: 0 }, vec![Some(labels), Some(index)], vec![label]);
    }
}

/// The first input as f32.
fn floats(cx: &mut NodeCx<'_>) -> ValueId {
    let x = cx.input(0);
    cx.emit(Cast { to: DType::F32 }, vec![x])
}

/// A constant of f32 and rank 1.
fn vector(cx: &mut NodeCx<'_>, values: &[f32]) -> Result<ValueId, Refusal> {
    let tensor = Tensor::from_slice([values.len()], values).map_err(|e| e.to_string())?;
    Ok(cx.emit_constant(tensor))
}

/// The rank of a value, where its type tells.
pub(crate) fn rank(cx: &NodeCx<'_>, id: ValueId) -> Option<usize> {
    cx.graph.info(id)?.ty.shape.as_ref().map(SymShape::rank)
}
