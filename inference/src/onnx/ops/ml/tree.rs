//! Tree ensembles in their three encodings.

use super::tree_parts::{Leaves, from_node_lists, numbers};
use super::{classes, labels, post_transform};
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    ClassRule, PostTransform, TreeAggregate, TreeBranch, TreeChild, TreeEnsemble, TreeSplit, Trees,
};

pub(crate) fn tree_ensemble_regressor(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let aggregate = match cx.text("aggregate_function")?.unwrap_or("SUM") {
        "SUM" => TreeAggregate::Sum,
        "AVERAGE" => TreeAggregate::Average,
        "MIN" => TreeAggregate::Min,
        "MAX" => TreeAggregate::Max,
        other => {
            let all = ["SUM", "AVERAGE", "MIN", "MAX"];
            return Err(unsupported("aggregate_function", other, &all));
        }
    };
    let post = post_transform(cx)?;
    let targets = cx.size("n_targets")?.unwrap_or(1);
    let leaves = Leaves {
        trees: cx.ints("target_treeids")?.unwrap_or_default(),
        nodes: cx.ints("target_nodeids")?.unwrap_or_default(),
        targets: cx.sizes("target_ids")?,
        weights: numbers(cx, "target_weights", "target_weights_as_tensor")?,
    };
    let base = numbers(cx, "base_values", "base_values_as_tensor")?;
    let trees = from_node_lists(cx, &leaves)?;
    let op = TreeEnsemble::new(&trees, targets, aggregate, base, post);
    cx.map(op.map_err(|e| e.to_string())?)
}

pub(crate) fn tree_ensemble_classifier(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let labels = labels(cx, "classlabels_int64s")?;
    let post = post_transform(cx)?;
    let mut leaves = Leaves {
        trees: cx.ints("class_treeids")?.unwrap_or_default(),
        nodes: cx.ints("class_nodeids")?.unwrap_or_default(),
        targets: cx.sizes("class_ids")?,
        weights: numbers(cx, "class_weights", "class_weights_as_tensor")?,
    };
    let base = numbers(cx, "base_values", "base_values_as_tensor")?;
    let mut scores = labels.len();
    let rule = match one_of_two(&leaves, scores) {
        None => ClassRule::Highest,
        Some(class) => {
            let probability = leaves.weights.iter().all(|w| *w >= 0.);
            let threshold = if probability { 0.5 } else { 0. };
            // ONNX does not define this case, and ONNX Runtime ignores the base values.
            if base.len() == 2 - class {
                let (count, which) = (base.len(), ["first", "second"][class]);
                return Err(format!(
                    "{count} base values where all weights are of the {which} class"
                ));
            }
            if class == 0 {
                // The only score belongs to the second class.
                leaves.targets.fill(0);
                scores = 1;
                ClassRule::Above { threshold, probability }
            } else {
                ClassRule::SecondAbove { threshold }
            }
        }
    };
    let trees = from_node_lists(cx, &leaves)?;
    let op = TreeEnsemble::new(&trees, scores, TreeAggregate::Sum, base, PostTransform::None);
    let x = cx.input(0);
    let raw = cx.emit(op.map_err(|e| e.to_string())?, vec![x]);
    classes(cx, raw, rule, post, labels);
    Ok(())
}

/// The class of all weights, if there are two classes and all weights have the same.
fn one_of_two(leaves: &Leaves, classes: usize) -> Option<usize> {
    let first = *leaves.targets.first().filter(|&&class| class < 2)?;
    (classes == 2 && leaves.targets.iter().all(|&t| t == first)).then_some(first)
}

/// The encoding of version 5, by indices.
pub(crate) fn tree_ensemble(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["nodes_hitrates"]);
    let aggregate = match cx.int("aggregate_function")?.unwrap_or(1) {
        0 => TreeAggregate::Average,
        1 => TreeAggregate::Sum,
        2 => TreeAggregate::Min,
        3 => TreeAggregate::Max,
        other => return Err(format!("attribute 'aggregate_function' is {other}, expected 0 to 3")),
    };
    let post = match cx.int("post_transform")?.unwrap_or(0) {
        0 => PostTransform::None,
        1 => PostTransform::Softmax,
        2 => PostTransform::Logistic,
        3 => PostTransform::SoftmaxZero,
        4 => PostTransform::Probit,
        other => return Err(format!("attribute 'post_transform' is {other}, expected 0 to 4")),
    };
    let targets = cx.size("n_targets")?.unwrap_or(1);
    let weights = numbers(cx, "", "leaf_weights")?;
    let ids = cx.sizes("leaf_targetids")?;
    if weights.len() != ids.len() {
        return Err(format!("{} leaf weights for {} leaf targets", weights.len(), ids.len()));
    }
    let roots = cx.sizes("tree_roots")?.into_iter().map(TreeChild::Split).collect();
    let leaves = ids.into_iter().zip(weights).map(|leaf| vec![leaf]).collect();
    let trees = Trees { splits: indexed_splits(cx)?, leaves, roots };
    let op = TreeEnsemble::new(&trees, targets, aggregate, vec![], post);
    cx.map(op.map_err(|e| e.to_string())?.keeping_f64())
}

fn indexed_splits(cx: &mut NodeCx<'_>) -> Result<Vec<TreeSplit>, Refusal> {
    let features = cx.sizes("nodes_featureids")?;
    let modes = cx.tensor("nodes_modes")?.ok_or("attribute 'nodes_modes' is missing")?;
    let thresholds = numbers(cx, "", "nodes_splits")?;
    let members = numbers(cx, "", "membership_values")?;
    let (yes, no) = (cx.sizes("nodes_truenodeids")?, cx.sizes("nodes_falsenodeids")?);
    let yes_leaf = cx.ints("nodes_trueleafs")?.unwrap_or_default();
    let no_leaf = cx.ints("nodes_falseleafs")?.unwrap_or_default();
    let missing = cx.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let count = features.len();
    let lengths = [modes.as_bytes().len(), thresholds.len(), yes.len(), no.len()];
    let flags = [yes_leaf.len(), no_leaf.len()];
    let missing_fits = missing.is_empty() || missing.len() == count;
    if lengths.iter().chain(&flags).any(|&n| n != count) || !missing_fits {
        return Err(format!("the lists of nodes differ in length from the {count} features"));
    }
    let mut sets = members.split(|m| m.is_nan());
    let child = |leaf: i64, index: usize| {
        if leaf == 0 { TreeChild::Split(index) } else { TreeChild::Leaf(index) }
    };
    let mut splits = Vec::with_capacity(count);
    for (i, (&feature, &mode)) in features.iter().zip(modes.as_bytes()).enumerate() {
        let t = thresholds[i];
        let branch = match mode {
            0 => TreeBranch::LessOrEqual(t),
            1 => TreeBranch::Less(t),
            2 => TreeBranch::GreaterOrEqual(t),
            3 => TreeBranch::Greater(t),
            4 => TreeBranch::Equal(t),
            5 => TreeBranch::NotEqual(t),
            6 => TreeBranch::Member(sets.next().ok_or("a set of members is missing")?.to_vec()),
            other => return Err(format!("mode {other} of node {i}, expected 0 to 6")),
        };
        splits.push(TreeSplit {
            feature,
            branch,
            missing_is_yes: missing.get(i).is_some_and(|&m| m != 0),
            yes: child(yes_leaf[i], yes[i]),
            no: child(no_leaf[i], no[i]),
        });
    }
    Ok(splits)
}
