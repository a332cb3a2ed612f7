//! The same bytes under another dtype.

use crate::Axes;
use crate::args::{concrete_one, output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `BitCast`: one input of a dtype of the same size; a byte that is no bool is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitCast {
    /// The output's dtype.
    pub to: DType,
}

impl Op for BitCast {
    fn name(&self) -> &'static str {
        "BitCast"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        if x.ty.dtype.size() != self.to.size() {
            let message = format!("{} and {} differ in size", x.ty.dtype, self.to);
            return Err(Error::invalid(message));
        }
        Ok(output(self.to, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        Ok(vec![Tensor::from_bytes(dtype, shape, required(inputs, 0)?.as_bytes())?])
    }
}
