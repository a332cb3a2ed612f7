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

impl LayerNorm {
    fn norm(&self) -> LastAxes {
        LastAxes { axis: self.axis, epsilon: self.epsilon, centred: true }
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
        self.norm().infer_types(inputs)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        crate::norm::axes(self.axis, inputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        self.norm().launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        self.norm().schedules(inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        self.norm().run(self, ctx, inputs)
    }
}

/// A norm over the last axes. Inputs: x, scale, bias (optional); scale and bias broadcast to the
/// normalised axes.
#[derive(Debug)]
pub(crate) struct LastAxes {
    /// First axis that is normalised, negative from the back.
    pub(crate) axis: i64,
    /// Added to the variance before the square root.
    pub(crate) epsilon: f32,
    /// Whether the mean is subtracted. If not, the mean square takes the variance's place, and
    /// there is no bias.
    pub(crate) centred: bool,
}

impl LastAxes {
    /// The type of x. Checks the dtypes, and that scale and bias broadcast to the normalised axes.
    pub(crate) fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let last = match x.sym_shape() {
            Some(dims) => Some(&dims[axis(self.axis, dims.len())?..]),
            None => None,
        };
        required(inputs, 1)?;
        for (i, what) in [(1, "scale"), (2, "bias")] {
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
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }
}
