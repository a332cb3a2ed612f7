//! Normalisation over groups of channels.

mod cpu;
mod device;

use super::batch_norm::channels;
use crate::Axes;
use crate::args::{arity, float, output, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::norm;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};

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

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let op = self.name();
        arity(op, inputs, 3, 3)?;
        let x = required(op, inputs, 0)?;
        float(op, x.ty.dtype)?;
        let channels = channels(op, x, inputs, &[])?;
        if self.groups == 0 || channels.known().is_some_and(|c| c % self.groups != 0) {
            let message = format!("{} groups do not divide {channels} channels", self.groups);
            return Err(Error::invalid(op, message));
        }
        let (scale, bias) = (required(op, inputs, 1)?, required(op, inputs, 2)?);
        for (what, parameter) in [("scale", scale), ("bias", bias)] {
            same_dtype(op, what, x.ty.dtype, parameter.ty.dtype)?;
            rank(op, what, parameter, 1)?;
            if let Some([length]) = parameter.sym_shape()
                && *length != Dim::Known(self.groups)
            {
                dims::expect(op, &format!("the length of {what}"), &channels, length)?;
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

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        cpu::run(self, ctx, inputs)
    }
}
