//! Batch normalisation at inference: a scale and a shift per channel.

mod cpu;
mod device;

use crate::args::{arity, float, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};

/// `BatchNormalization` with running statistics.
///
/// Inputs: x `[n, c, …]`, scale, bias, mean, variance, each `[c]`. One output of x's type.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        "BatchNormalization"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let op = self.name();
        arity(op, inputs, 5, 5)?;
        let x = required(op, inputs, 0)?;
        float(op, x.ty.dtype)?;
        channels(op, x, inputs, &[(1, "scale"), (2, "bias"), (3, "mean"), (4, "variance")])?;
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn launches(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, outputs)
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

/// Checks parameters of one entry a channel: dtype, rank and length. Returns the channels.
pub(crate) fn channels(
    op: &'static str,
    x: &ValueInfo,
    inputs: &[Option<&ValueInfo>],
    parameters: &[(usize, &str)],
) -> Result<Dim> {
    let channels = match x.sym_shape() {
        None => Dim::Unknown,
        Some([_, c, ..]) => c.clone(),
        Some(dims) => {
            let message = format!("the input has rank {}, expected 2 or more", dims.len());
            return Err(Error::invalid(op, message));
        }
    };
    for &(i, what) in parameters {
        let parameter = required(op, inputs, i)?;
        same_dtype(op, what, x.ty.dtype, parameter.ty.dtype)?;
        crate::args::rank(op, what, parameter, 1)?;
        if let Some([length]) = parameter.sym_shape() {
            dims::expect(op, &format!("the length of {what}"), &channels, length)?;
        }
    }
    Ok(channels)
}
