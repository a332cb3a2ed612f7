//! Normalisation over the last axes.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{axis, float, optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `LayerNormalization`: inputs x, scale, bias (optional); scale and bias broadcast to the
/// normalised axes. Only the first of ONNX's three outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    /// First axis that is normalised, negative from the back.
    pub axis: i64,
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-5 }
    }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "LayerNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        check(self.axis, inputs, &[(1, "scale"), (2, "bias")])?;
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

/// Checks x and the parameters of a norm over the axes from `first` on: dtypes, and that each
/// parameter broadcasts to those axes.
pub(crate) fn check(
    first: i64,
    inputs: &[Option<&ValueInfo>],
    parameters: &[(usize, &str)],
) -> Result<()> {
    let x = required(inputs, 0)?;
    float(x.ty.dtype)?;
    let last = match x.sym_shape() {
        Some(dims) => Some(&dims[axis(first, dims.len())?..]),
        None => None,
    };
    required(inputs, 1)?;
    for &(i, what) in parameters {
        let Some(parameter) = optional(inputs, i) else { continue };
        same_dtype(what, x.ty.dtype, parameter.ty.dtype)?;
        if let (Some(last), Some(dims)) = (last, parameter.sym_shape()) {
            let whole = dims::broadcast(dims, last)?;
            let grows = whole.len() > last.len()
                || whole.iter().zip(last).any(|(w, d)| dims::expect("", d, w).is_err());
            if grows {
                let (dims, last) = (SymShape(dims.to_vec()), SymShape(last.to_vec()));
                let message = format!("{what} of shape {dims} does not broadcast to {last}");
                return Err(Error::invalid(message));
            }
        }
    }
    Ok(())
}
