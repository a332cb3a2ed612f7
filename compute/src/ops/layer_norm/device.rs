//! Layer normalisation on devices.

use super::LayerNorm;
use crate::args::axis;
use crate::device::{Launches, Norm, Parameters};
use crate::op::ValueInfo;

pub(super) fn launches(
    op: &LayerNorm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let shape = outputs.first()?.ty.concrete_shape()?;
    let last = &shape[axis(op.axis, shape.rank()).ok()?..];
    let (line, parameters) = (last.iter().product(), Parameters::Line(last));
    let norm = Norm { line, centred: true, epsilon: op.epsilon, parameters };
    norm.launches(inputs, outputs)
}
