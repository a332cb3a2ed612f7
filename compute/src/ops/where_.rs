//! Chooses between two tensors, element by element.

mod cpu;

use crate::Axes;
use crate::args::{output, required, same_dtype};
use crate::device::{Element, all};
use crate::dims;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Where`: inputs condition (bool), a, b of one dtype; all three broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Where;

impl Op for Where {
    fn name(&self) -> &'static str {
        "Where"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let condition = required(inputs, 0)?;
        let (a, b) = (required(inputs, 1)?, required(inputs, 2)?);
        same_dtype("the condition", DType::Bool, condition.ty.dtype)?;
        same_dtype("input 2", a.ty.dtype, b.ty.dtype)?;
        let shape = match (condition.sym_shape(), a.sym_shape(), b.sym_shape()) {
            (Some(c), Some(a), Some(b)) => Some(dims::broadcast(c, &dims::broadcast(a, b)?)?),
            _ => None,
        };
        Ok(output(a.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let [condition, a, b] = all(x)?;
        Some(format!("{} ? {} : {}", condition.name, a.name, b.name))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
