//! Chooses between two tensors, element by element.

mod cpu;

use crate::Axes;
use crate::args::{arity, output, required, same_dtype};
use crate::device::{Element, all};
use crate::dims;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};

/// `Where`: inputs condition (bool), a, b of one dtype; all three broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Where;

impl Op for Where {
    fn name(&self) -> &'static str {
        "Where"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Where", inputs, 3, 3)?;
        let condition = required("Where", inputs, 0)?;
        let (a, b) = (required("Where", inputs, 1)?, required("Where", inputs, 2)?);
        same_dtype("Where", "the condition", DType::Bool, condition.ty.dtype)?;
        same_dtype("Where", "input 2", a.ty.dtype, b.ty.dtype)?;
        let shape = match (condition.sym_shape(), a.sym_shape(), b.sym_shape()) {
            (Some(c), Some(a), Some(b)) => {
                Some(dims::broadcast("Where", c, &dims::broadcast("Where", a, b)?)?)
            }
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

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
