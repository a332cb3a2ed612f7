//! Inserts axes of size 1.

use crate::Axes;
use crate::args::{axes, concrete_one, ints_or, optional, output_moved, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Unsqueeze`: inputs data and the axes (i64) as positions in the output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsqueeze {
    /// Replaces an absent axes input (opset < 13).
    pub axes: Option<Vec<i64>>,
}

impl Op for Unsqueeze {
    fn name(&self) -> &'static str {
        "Unsqueeze"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let named = ints_or("axes", optional(inputs, 1), self.axes.as_deref())?
            .ok_or_else(|| Error::invalid("axes are missing"))?;
        let shape = match (x.sym_shape(), named) {
            (Some(dims), Some(named)) => {
                let new = axes(&named, dims.len() + named.len())?;
                let mut old = dims.iter().cloned();
                let dim = |axis| {
                    if new.contains(&axis) { Some(Dim::Known(1)) } else { old.next() }
                };
                (0..dims.len() + new.len()).map(dim).collect()
            }
            _ => None,
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
        let whole = rank + named.len();
        let Ok(new) = axes(&named, whole) else { return Axes::new() };
        let old = (0..whole).filter(|axis| !new.contains(axis)).enumerate();
        old.fold(Axes::new(), |axes, (from, to)| axes.each([(0, from)], [(0, to)]))
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
