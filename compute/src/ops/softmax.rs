//! Softmax and its logarithm.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{axis, float, output, required};
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Given, Op, ValueInfo, as_large};
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Softmax`, `LogSoftmax`: one float input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Softmax {
    /// Axis, negative from the back.
    pub axis: i64,
    /// The logarithm of the softmax.
    pub log: bool,
    /// Normalises over all axes from `axis` on, as opsets before 13 do.
    pub flatten: bool,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "LogSoftmax" } else { "Softmax" }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        if let Some(dims) = x.sym_shape() {
            axis(self.axis, dims.len())?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let x = inputs.first().copied().flatten();
        let Some(rank) = x.and_then(ValueInfo::rank) else { return Axes::new() };
        let Ok(axis) = axis(self.axis, rank) else { return Axes::new() };
        let own: Vec<usize> = if self.flatten { (axis..rank).collect() } else { vec![axis] };
        let axes = Axes::each_but(&own, inputs, outputs.len());
        own.iter().fold(axes, |axes, &axis| axes.all([(0, axis)], [(0, axis)]))
    }

    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        as_large(inputs, outputs)
    }

    fn run_over(
        &self,
        ctx: &Context,
        given: Given,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        let mut out = given.checked(self, inputs)?;
        let normalized = cpu::normalize(self, ctx, None, &mut out);
        normalized.map_err(|error| error.of(self.name()))?;
        Ok(vec![out])
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        // `flatten` takes the axes from `axis` on, so that their order matters.
        let x = inputs.first().copied().flatten()?;
        let fits = !self.flatten && x.rank() == Some(order.len());
        let axis = moved_axis(order, self.axis).filter(|_| fits)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, outputs.len()))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
