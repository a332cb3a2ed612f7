//! Picks slices by index.

mod cpu;
mod device;

use crate::args::{axis, optional, output_moved, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Gather`: inputs data and indices (i32 or i64, any rank, negative from the back).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gather {
    /// Axis of data that is indexed, negative from the back.
    pub axis: i64,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        if !matches!(indices.ty.dtype, DType::I32 | DType::I64) {
            let message = format!("indices have dtype {}, expected i64", indices.ty.dtype);
            return Err(Error::invalid(message));
        }
        let axis = x.sym_shape().map(|x| axis(self.axis, x.len())).transpose()?;
        let shape = match (x.sym_shape(), indices.sym_shape(), axis) {
            (Some(x), Some(indices), Some(axis)) => {
                Some([&x[..axis], indices, &x[axis + 1..]].concat())
            }
            _ => None,
        };
        output_moved(self, inputs, 0..1, shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = |i: usize| optional(inputs, i).and_then(|x| x.rank());
        let (Some(x), Some(indices)) = (rank(0), rank(1)) else { return Axes::new() };
        let Ok(axis) = axis(self.axis, x) else { return Axes::new() };
        let picked = Axes::new().with(AxisKind::Picked { by: 1 }, [(0, axis)], []);
        let placed = (0..indices).fold(picked, |axes, i| axes.each([(1, i)], [(0, axis + i)]));
        let others = (0..x).filter(|i| *i != axis);
        others.fold(placed, |axes, i| {
            axes.each([(0, i)], [(0, if i < axis { i } else { i + indices - 1 })])
        })
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
