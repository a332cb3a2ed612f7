//! Group normalisation on devices.

use super::GroupNorm;
use crate::device::{Launches, Norm, Parameters};
use crate::movement::around;
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &GroupNorm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    norm(op, outputs)?.launches(inputs, outputs)
}

pub(super) fn schedules(
    op: &GroupNorm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    norm(op, outputs).map_or(Vec::new(), |norm| norm.schedules(inputs, outputs))
}

fn norm(op: &GroupNorm, outputs: &[ValueInfo]) -> Option<Norm<'static>> {
    let (_, channels, plane) = around(&outputs.first()?.ty.concrete_shape()?, 1);
    let per_line = channels / op.groups;
    let parameters = Parameters::Channels { channels, per_line, plane };
    Some(Norm { line: per_line * plane, centred: true, epsilon: op.epsilon, parameters })
}
