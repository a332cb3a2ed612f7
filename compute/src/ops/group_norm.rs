//! Normalisation over groups of channels.

mod cpu;
mod device;

use super::batch_norm::{channels, entries};
use crate::Axes;
use crate::args::{concrete_one, float, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::norm;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `GroupNormalization`: inputs x `[n, c, …]`, scale and bias.
///
/// Scale and bias have one entry a channel (opset 21) or one a group (opset 18), as their length
/// tells.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNorm {
    /// Number of groups; divides the channels.
    pub groups: usize,
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        "GroupNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let channels = channels(x)?;
        if self.groups == 0 || channels.known().is_some_and(|c| c % self.groups != 0) {
            let message = format!("{} groups do not divide {channels} channels", self.groups);
            return Err(Error::invalid(message));
        }
        let groups = Dim::Known(self.groups);
        for (i, what) in [(1, "scale"), (2, "bias")] {
            let parameter = required(inputs, i)?;
            let per_group = parameter.dim(0) == Some(&groups);
            entries(what, x, parameter, if per_group { &groups } else { &channels })?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let axes = norm::sample_axes(inputs);
        // Several groups divide the channels into parts; a single group has all of them.
        match norm::parameters(inputs, 1, |_| Some(0)).filter(|_| self.groups == 1) {
            Some(own) => axes.all(own, [(0, 1)]),
            None => axes,
        }
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        self.normalised(ctx, inputs, dtype, shape)
    }
}
