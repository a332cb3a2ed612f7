//! Root mean square normalisation over the last axes.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{output, required};
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::layer_norm;
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `RMSNormalization`: inputs x and scale, which broadcasts to the normalised axes:
/// `x / sqrt(mean(x²) + epsilon) · scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    /// First axis that is normalised, negative from the back.
    pub axis: i64,
    /// Added to the mean square before the square root.
    pub epsilon: f32,
}

impl Default for RmsNorm {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-5 }
    }
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "RMSNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        layer_norm::check(self.axis, inputs, &[(1, "scale")])?;
        let x = required(inputs, 0)?;
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        crate::norm::axes(self.axis, inputs)
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
