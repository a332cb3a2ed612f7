//! A tensor of one repeated value.

mod cpu;

use crate::Axes;
use crate::args::{output, rank, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::Tensor;
use lgp_memory::TensorView;
use std::ops::RangeInclusive;

/// `ConstantOfShape`: input is the shape (i64, rank 1).
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantOfShape {
    /// The value: exactly one element, whose dtype is the output's. ONNX's default is f32 0.
    pub value: Tensor,
}

impl Op for ConstantOfShape {
    fn name(&self) -> &'static str {
        "ConstantOfShape"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let target = required(inputs, 0)?;
        rank("the shape", target, 1)?;
        if self.value.len() != 1 {
            let message = format!("the value has {} elements, expected 1", self.value.len());
            return Err(Error::invalid(message));
        }
        Ok(output(self.value.dtype(), target.target_shape()?))
    }

    fn axes(&self, _: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = outputs.first().and_then(ValueInfo::rank).unwrap_or(0);
        (0..rank).fold(Axes::new(), |axes, axis| axes.each([], [(0, axis)]))
    }

    fn shape_input(&self) -> Option<usize> {
        Some(0)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
