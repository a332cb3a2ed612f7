//! Normalisation over groups of channels.

mod cpu;
mod device;

use super::batch_norm::channels;
use crate::Axes;
use crate::args::{float, output, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::norm;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `GroupNormalization`: inputs x `[n, c, …]`, scale and bias.
///
/// Scale and bias have one entry a channel (opset 21) or one a group (opset 18); which, their
/// length tells.
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
        let channels = channels(x, inputs, &[])?;
        if self.groups == 0 || channels.known().is_some_and(|c| c % self.groups != 0) {
            let message = format!("{} groups do not divide {channels} channels", self.groups);
            return Err(Error::invalid(message));
        }
        let (scale, bias) = (required(inputs, 1)?, required(inputs, 2)?);
        for (what, parameter) in [("scale", scale), ("bias", bias)] {
            same_dtype(what, x.ty.dtype, parameter.ty.dtype)?;
            rank(what, parameter, 1)?;
            if let Some([length]) = parameter.sym_shape()
                && *length != Dim::Known(self.groups)
            {
                dims::expect(&format!("the length of {what}"), &channels, length)?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let axes = norm::sample_axes(inputs);
        // Groups part the channels, unless all are one.
        match norm::parameters(inputs, 1, |_| Some(0)).filter(|_| self.groups == 1) {
            Some(own) => axes.all(own, [(0, 1)]),
            None => axes,
        }
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
