//! Normalisation of each channel of each sample.

use super::batch_norm::{channels, entries};
use crate::Axes;
use crate::args::{concrete_one, float, output, required};
use crate::device::Launches;
use crate::error::Result;
use crate::norm;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::GroupNorm;
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `InstanceNormalization`: inputs x `[n, c, …]`, scale `[c]`, bias `[c]`.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceNorm {
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for InstanceNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

impl InstanceNorm {
    /// The same with as many groups as x of this shape has channels.
    fn grouped(&self, shape: &[usize]) -> GroupNorm {
        // Without channels there is no element, and a count of groups is not 0.
        GroupNorm { groups: shape[1].max(1), epsilon: self.epsilon }
    }
}

impl Op for InstanceNorm {
    fn name(&self) -> &'static str {
        "InstanceNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let channels = channels(x)?;
        for (i, what) in [(1, "scale"), (2, "bias")] {
            entries(what, x, required(inputs, i)?, &channels)?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        norm::sample_axes(inputs).each([(0, 1), (1, 0), (2, 0)], [(0, 1)])
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        let shape = outputs.first()?.ty.concrete_shape()?;
        self.grouped(&shape).launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        let shape = outputs.first().and_then(|output| output.ty.concrete_shape());
        shape.map_or(Vec::new(), |shape| self.grouped(&shape).schedules(inputs, outputs))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        self.grouped(&shape).normalised(ctx, inputs, dtype, shape)
    }
}
