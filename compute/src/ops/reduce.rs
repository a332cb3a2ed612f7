//! Reductions over axes.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{axes, ints_or, not_bool, optional, output, required};
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::Reordered;
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

pub(crate) use cpu::{gathered_last, reduce_rows};

/// The function that reduces the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceKind {
    /// Arithmetic mean.
    Mean,
    /// Sum.
    Sum,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Product.
    Prod,
    /// Sum of absolute values.
    L1,
    /// Square root of the sum of squares.
    L2,
    /// Sum of squares.
    SumSquare,
    /// Logarithm of the sum of exponentials.
    LogSumExp,
}

/// `ReduceMean`, `ReduceSum` and so on: inputs x and the axes (i64, optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduce {
    /// The reduction.
    pub kind: ReduceKind,
    /// Replaces an absent axes input, negative from the back.
    pub axes: Option<Vec<i64>>,
    /// Keeps the reduced axes with size 1.
    pub keep_dims: bool,
    /// Without axes, reduces nothing instead of everything.
    pub noop_with_empty_axes: bool,
}

impl Reduce {
    /// A reduction over `axes`, or over everything, that keeps the rank.
    #[must_use]
    pub fn new(kind: ReduceKind, axes: Option<Vec<i64>>) -> Self {
        Self { kind, axes, keep_dims: true, noop_with_empty_axes: false }
    }
}

impl Reduce {
    /// The axes that are reduced, in order; `None` while unknown.
    fn reduced(&self, inputs: &[Option<&ValueInfo>], rank: usize) -> Result<Option<Vec<usize>>> {
        let named = ints_or("axes", optional(inputs, 1), self.axes.as_deref())?;
        let named = match named {
            Some(None) => return Ok(None),
            Some(Some(named)) => named,
            None => Vec::new(),
        };
        if named.is_empty() {
            let all = if self.noop_with_empty_axes { 0 } else { rank };
            return Ok(Some((0..all).collect()));
        }
        let mut out = axes(&named, rank)?;
        out.sort_unstable();
        Ok(Some(out))
    }
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ReduceKind::Mean => "ReduceMean",
            ReduceKind::Sum => "ReduceSum",
            ReduceKind::Max => "ReduceMax",
            ReduceKind::Min => "ReduceMin",
            ReduceKind::Prod => "ReduceProd",
            ReduceKind::L1 => "ReduceL1",
            ReduceKind::L2 => "ReduceL2",
            ReduceKind::SumSquare => "ReduceSumSquare",
            ReduceKind::LogSumExp => "ReduceLogSumExp",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let extreme = matches!(self.kind, ReduceKind::Max | ReduceKind::Min);
        if !extreme {
            not_bool(x.ty.dtype)?;
        }
        let Some(dims) = x.sym_shape() else { return Ok(output(x.ty.dtype, None)) };
        let shape = match self.reduced(inputs, dims.len())? {
            None if self.keep_dims => Some(vec![Dim::Unknown; dims.len()]),
            None => None,
            Some(reduced) => Some(without(dims, &reduced, self.keep_dims)),
        };
        // The product of dimensions is an element count, and worth tracking.
        let contents = match self.kind {
            ReduceKind::Prod if x.dims.is_some() => {
                x.contents().and_then(|c| Some(vec![crate::dims::product(&c).ok()?]))
            }
            _ => None,
        };
        let out = output(x.ty.dtype, shape);
        Ok(out.into_iter().map(|o| o.with_contents(contents.clone())).collect())
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let Ok(Some(reduced)) = self.reduced(inputs, rank) else { return Axes::new() };
        (0..rank).fold(Axes::new(), |axes, axis| {
            if reduced.contains(&axis) {
                return axes.all([(0, axis)], []);
            }
            let gone = |other: &&usize| !self.keep_dims && **other < axis;
            axes.each([(0, axis)], [(0, axis - reduced.iter().filter(gone).count())])
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| crate::cost::elements(x))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::schedules(self, inputs, outputs).into_iter().next()
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let x = inputs.first().copied().flatten().filter(|x| x.rank() == Some(order.len()))?;
        let axes = self.reduced(inputs, order.len()).ok()??;
        let place = |axis: &usize| order.iter().position(|old| old == axis);
        let axes: Vec<usize> = axes.iter().map(place).collect::<Option<_>>()?;
        let left: Vec<usize> = (0..order.len()).filter(|axis| !axes.contains(axis)).collect();
        // Without the reduced axes, the output is in the old order: the axes left must have it.
        let plain = left.windows(2).all(|pair| order[pair[0]] < order[pair[1]]);
        if axes.is_empty() || x.constant.is_some() || !(self.keep_dims || plain) {
            return None;
        }
        let axes = axes.iter().map(|&axis| i64::try_from(axis).ok()).collect::<Option<_>>()?;
        let op = Self { axes: Some(axes), ..self.clone() };
        let reads = (0..inputs.len()).map(|i| i == 0).collect();
        let make = |_| Ok(vec![Step::new(op, vec![Operand::Input(0)])]);
        Some(Reordered::new(reads, vec![self.keep_dims], make))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if inputs.first().and_then(Option::as_ref).is_some_and(|x| x.dtype() == DType::Bool) {
            // The extremes of bools are those of their numbers 0 and 1.
            return cpu::through(self, ctx, inputs, DType::U8);
        }
        let integers = |x: &TensorView<'_>| {
            matches!(x.dtype(), DType::I32 | DType::I64 | DType::U32 | DType::U64)
        };
        if matches!(self.kind, ReduceKind::L2 | ReduceKind::LogSumExp)
            && inputs.first().and_then(Option::as_ref).is_some_and(integers)
        {
            // For integers, the result is truncated to an integer.
            return cpu::through(self, ctx, inputs, DType::F64);
        }
        cpu::run(self, ctx, inputs)
    }
}

/// The dimensions after a reduction.
pub(crate) fn without(dims: &[Dim], reduced: &[usize], keep: bool) -> Vec<Dim> {
    let mut out = Vec::with_capacity(dims.len());
    for (axis, dim) in dims.iter().enumerate() {
        if !reduced.contains(&axis) {
            out.push(dim.clone());
        } else if keep {
            out.push(Dim::Known(1));
        }
    }
    out
}
