//! Normalisation at inference.

use super::data::evaluates;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Lrn};

const EPSILON: f32 = 1e-5;

pub(crate) fn batch_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    if cx.flag("training_mode")?.unwrap_or(false) {
        return Err("attribute 'training_mode' is 1, supported: 0".into());
    }
    // Statistics per activation went out with opset 9.
    if !cx.flag("spatial")?.unwrap_or(true) {
        return Err("attribute 'spatial' is 0, supported: 1".into());
    }
    evaluates(cx)?;
    // `consumed_inputs` told opset 1 what may be overwritten.
    cx.ignore(&["momentum", "consumed_inputs"]);
    cx.at_most_outputs(1)?;
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    cx.map(BatchNorm { epsilon })
}

pub(crate) fn instance_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    cx.map(InstanceNorm { epsilon })
}

pub(crate) fn layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.at_most_outputs(1)?;
    // The precision of the statistics; ours is never lower than f32.
    cx.ignore(&["stash_type"]);
    let op = LayerNorm {
        axis: cx.int("axis")?.unwrap_or(-1),
        epsilon: cx.float("epsilon")?.unwrap_or(EPSILON),
    };
    cx.map(op)
}

pub(crate) fn group_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["stash_type"]);
    let Some(groups) = cx.size("num_groups")? else {
        return Err("attribute 'num_groups' is missing".into());
    };
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    cx.map(GroupNorm { groups, epsilon })
}

pub(crate) fn lrn(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(size) = cx.size("size")? else {
        return Err("attribute 'size' is missing".into());
    };
    let op = Lrn {
        alpha: cx.float("alpha")?.unwrap_or(1e-4),
        beta: cx.float("beta")?.unwrap_or(0.75),
        bias: cx.float("bias")?.unwrap_or(1.),
        size,
    };
    cx.map(op)
}
