//! Drops axes of size 1.

use crate::Axes;
use crate::args::{axes, concrete_one, ints_or, optional, output_moved, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Squeeze`: inputs data and the axes (i64, optional); without axes, all of size 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Squeeze {
    /// Replaces an absent axes input (opset < 13).
    pub axes: Option<Vec<i64>>,
}

impl Squeeze {
    fn shape(&self, dims: &[Dim], named: Option<&[i64]>) -> Result<Option<Vec<Dim>>> {
        let Some(named) = named else {
            // An unknown dimension may be 1, so that even the rank is unknown.
            if dims.iter().any(|d| d.known().is_none()) {
                return Ok(None);
            }
            return Ok(Some(dims.iter().filter(|d| **d != Dim::Known(1)).cloned().collect()));
        };
        let named = axes(named, dims.len())?;
        for &axis in &named {
            if let Some(n) = dims[axis].known().filter(|&n| n != 1) {
                let message = format!("axis {axis} has size {n}, expected 1");
                return Err(Error::invalid(message));
            }
        }
        let kept = dims.iter().enumerate().filter(|(axis, _)| !named.contains(axis));
        Ok(Some(kept.map(|(_, d)| d.clone()).collect()))
    }
}

impl Op for Squeeze {
    fn name(&self) -> &'static str {
        "Squeeze"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let named = ints_or("axes", optional(inputs, 1), self.axes.as_deref())?;
        let shape = match (x.sym_shape(), named) {
            (None, _) | (_, Some(None)) => None,
            (Some(dims), None) => self.shape(dims, None)?,
            (Some(dims), Some(Some(named))) => self.shape(dims, Some(&named))?,
        };
        output_moved(self, inputs, 0..1, shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let (Some(x), Some(out)) = (optional(inputs, 0), outputs.first()) else {
            return Axes::new();
        };
        let named = ints_or("axes", optional(inputs, 1), self.axes.as_deref());
        let (Some(rank), Ok(Some(Some(named)))) = (x.rank(), named) else {
            return Axes::reshaped(x, out);
        };
        let Ok(named) = axes(&named, rank) else { return Axes::new() };
        let kept = (0..rank).filter(|axis| !named.contains(axis)).enumerate();
        kept.fold(Axes::new(), |axes, (to, from)| axes.each([(0, from)], [(0, to)]))
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
