//! ArgMax and ArgMin: the position of the extreme value along one axis.

mod cpu;
mod device;

use super::reduce::without;
use crate::Axes;
use crate::args::{axis, not_bool, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// The extreme whose position is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// `ArgMax`, `ArgMin`: one input of any numeric dtype, one i64 output.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgReduce {
    /// Which extreme.
    pub kind: ArgKind,
    /// Axis, negative from the back.
    pub axis: i64,
    /// Keeps the reduced axis with size 1.
    pub keep_dims: bool,
    /// Of equal extremes, takes the last instead of the first.
    pub select_last_index: bool,
}

impl Op for ArgReduce {
    fn name(&self) -> &'static str {
        match self.kind {
            ArgKind::Max => "ArgMax",
            ArgKind::Min => "ArgMin",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        not_bool(x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => {
                let axis = axis(self.axis, dims.len())?;
                if dims[axis] == Dim::Known(0) {
                    return Err(Error::invalid(format!("axis {axis} has no elements")));
                }
                Some(without(dims, &[axis], self.keep_dims))
            }
        };
        Ok(output(DType::I64, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        let Ok(reduced) = axis(self.axis, rank) else { return Axes::new() };
        let own = (0..rank).filter(|&axis| axis != reduced);
        own.fold(Axes::new(), |axes, axis| {
            let gone = !self.keep_dims && axis > reduced;
            axes.each([(0, axis)], [(0, axis - usize::from(gone))])
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        inputs.iter().flatten().map(|x| crate::cost::elements(x)).sum()
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let x = inputs.first().copied().flatten()?;
        let fits = self.keep_dims && x.rank() == Some(order.len());
        let axis = moved_axis(order, self.axis).filter(|_| fits)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, 1))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
