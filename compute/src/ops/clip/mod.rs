//! Limits every element to a range.

mod cpu;

use crate::args::{arity, optional, output, required, same_dtype, single};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};

/// `Clip`: inputs x, min (scalar, optional), max (scalar, optional).
///
/// The attributes stand in for an input that is absent (opset < 11), or are what a compiler
/// folded a constant input into; for integer dtypes they must be integers in range.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clip {
    /// Lower bound.
    pub min: Option<f32>,
    /// Upper bound.
    pub max: Option<f32>,
}

impl Op for Clip {
    fn name(&self) -> &'static str {
        "Clip"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Clip", inputs, 1, 3)?;
        let x = required("Clip", inputs, 0)?;
        if x.ty.dtype == DType::Bool {
            return Err(Error::invalid("Clip", "it has no meaning for bool"));
        }
        for (i, what) in [(1, "min"), (2, "max")] {
            if let Some(bound) = optional(inputs, i) {
                same_dtype("Clip", what, x.ty.dtype, bound.ty.dtype)?;
                single("Clip", what, bound)?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
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
