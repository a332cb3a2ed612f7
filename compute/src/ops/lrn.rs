//! Local response normalisation across channels.

mod cpu;
mod device;

use super::batch_norm::channels;
use crate::args::{float, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `LRN`: `x / (bias + alpha / size · Σ x²)^beta`, the sum over `size` neighbouring channels.
#[derive(Debug, Clone, PartialEq)]
pub struct Lrn {
    /// Scale of the sum of squares.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
    /// Added to the scaled sum.
    pub bias: f32,
    /// Channels in the sum.
    pub size: usize,
}

impl Op for Lrn {
    fn name(&self) -> &'static str {
        "LRN"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        channels(x)?;
        if self.size == 0 {
            return Err(Error::invalid("size is 0, expected 1 or more"));
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let before = self.size.saturating_sub(1) / 2;
        let channels = AxisKind::Window { stride: 1, before, extent: self.size };
        Axes::each_but(&[1], inputs, outputs.len()).with(channels, [(0, 1)], [(0, 1)])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let channels = outputs.first().and_then(|y| y.dim(1)?.known()).unwrap_or(0);
        let elements = outputs.first().map_or(0, crate::cost::elements);
        elements.saturating_mul(self.size.min(channels) as u64)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
