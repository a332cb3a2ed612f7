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
        self.with(outputs, |norm| norm.launches(inputs, outputs))?
    }

    pub(crate) fn schedules(
        &self,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Vec<Launches> {
        self.with(outputs, |norm| norm.schedules(inputs, outputs)).unwrap_or_default()
    }

    /// What `then` makes of the norm; `None` for an unknown shape.
    fn with<T>(&self, outputs: &[ValueInfo], then: impl FnOnce(&Norm<'_>) -> T) -> Option<T> {
        let shape = outputs.first()?.ty.concrete_shape()?;
        let last = &shape[axis(self.axis, shape.rank()).ok()?..];
        let (line, parameters) = (last.iter().product(), Parameters::Line(last));
        Some(then(&Norm { line, centred: self.centred, epsilon: self.epsilon, parameters }))
    }
}
