//! Normalisation over the last axes on devices.

use super::LastAxes;
use crate::args::axis;
use crate::device::{Launches, Norm, Parameters};
use crate::op::ValueInfo;

impl LastAxes {
    pub(crate) fn launches(
        &self,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Launches> {
        let shape = outputs.first()?.ty.concrete_shape()?;
        let last = &shape[axis(self.axis, shape.rank()).ok()?..];
        let (line, parameters) = (last.iter().product(), Parameters::Line(last));
        let norm = Norm { line, centred: self.centred, epsilon: self.epsilon, parameters };
        norm.launches(inputs, outputs)
    }
}
