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
    let (_, channels, plane) = around(&outputs.first()?.ty.concrete_shape()?, 1);
    let per_line = channels / op.groups;
    let parameters = Parameters::Channels { channels, per_line, plane };
    let norm = Norm { line: per_line * plane, centred: true, epsilon: op.epsilon, parameters };
    norm.launches(inputs, outputs)
}
