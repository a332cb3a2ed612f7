//! Normalisation of each channel of each sample.

mod cpu;
mod device;

use super::batch_norm::channels;
use crate::Axes;
use crate::args::{float, output, required};
use crate::device::Launches;
use crate::error::Result;
use crate::norm;
use crate::op::{Context, Op, ValueInfo};
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
        channels(x, inputs, &[(1, "scale"), (2, "bias")])?;
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        norm::sample_axes(inputs).each([(0, 1), (1, 0), (2, 0)], [(0, 1)])
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
