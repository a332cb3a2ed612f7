//! Limits every element to a range.

mod cpu;

use crate::args::{arity, optional, output, required, same_dtype, single};
use crate::device::{Element, literal};
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

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let value = x.first().copied().flatten()?;
        let is_float = matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16);
        let bound = |i: usize, attribute: Option<f32>| match x.get(i).copied().flatten() {
            Some(given) => Some(Some(given.name.to_owned())),
            None if attribute.is_none() => Some(None),
            None => is_float.then(|| attribute.map(literal)),
        };
        let (least, most) = (bound(1, self.min)?, bound(2, self.max)?);
        let mut y = value.name.to_owned();
        if let Some(least) = least {
            y = format!("({y} < {least} ? {least} : {y})");
        }
        if let Some(most) = most {
            y = format!("({y} > {most} ? {most} : {y})");
        }
        Some(y)
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
