//! Any tensor as a matrix.

use crate::Axes;
use crate::args::{concrete_one, optional, output, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Flatten`: the axes before `axis` become the rows, the others the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flatten {
    /// First axis of the columns, negative from the back; may be the rank.
    pub axis: i64,
}

impl Default for Flatten {
    fn default() -> Self {
        Self { axis: 1 }
    }
}

impl Op for Flatten {
    fn name(&self) -> &'static str {
        "Flatten"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let Some(dims) = x.sym_shape() else {
            return Ok(output(x.ty.dtype, Some(vec![Dim::Unknown, Dim::Unknown])));
        };
        let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
        let axis = if self.axis < 0 { self.axis.saturating_add(rank) } else { self.axis };
        let axis = usize::try_from(axis).ok().filter(|&a| a <= dims.len()).ok_or_else(|| {
            let message = format!("axis {} is outside a tensor of rank {rank}", self.axis);
            Error::invalid(message)
        })?;
        let (rows, columns) = dims.split_at(axis);
        let shape = vec![dims::product(rows)?, dims::product(columns)?];
        Ok(output(x.ty.dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        match (optional(inputs, 0), outputs.first()) {
            (Some(x), Some(out)) => Axes::reshaped(x, out),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn passes_memory_on(&self) -> bool {
        true
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = concrete_one(self, inputs)?;
        Ok(vec![required(inputs, 0)?.to_tensor()?.reshape(shape)?])
    }
}
