//! Broadcasting to a given shape.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{optional, output, rank, required};
use crate::device::Launches;
use crate::dims;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

pub(crate) use cpu::to;

/// `Expand`: inputs x and the shape (i64, rank 1); the two broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expand;

impl Op for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, target) = (required(inputs, 0)?, required(inputs, 1)?);
        rank("the shape", target, 1)?;
        let target = target.target_shape()?;
        let shape = match (x.sym_shape(), target) {
            (Some(x), Some(target)) => {
                // An unknown entry may be 1, so that x's dimension stays, or another number.
                let mut out = dims::broadcast(x, &target)?;
                let new = out.len() - target.len();
                for (out, target) in out[new..].iter_mut().zip(&target) {
                    if *target == Dim::Unknown && !matches!(out, Dim::Known(n) if *n != 1) {
                        *out = Dim::Unknown;
                    }
                }
                Some(out)
            }
            _ => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        repeated_axes(inputs, outputs).unwrap_or_default()
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn shape_input(&self) -> Option<usize> {
        Some(1)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The axes of x in the output; `None` where a rank is unknown. Where the shape has fewer entries
/// than the output has axes, the last axes are left out: the entries fix their lengths.
fn repeated_axes(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Axes> {
    let (x, out) = (optional(inputs, 0)?, outputs.first()?);
    let (rank, own) = (out.rank()?, x.rank()?);
    let target = optional(inputs, 1)?.dim(0)?.known()?;
    let new = rank.checked_sub(own)?;
    // All positions of a new axis have the same elements.
    let repeated = (0..new).fold(Axes::new(), |axes, axis| axes.each([], [(0, axis)]));
    Some((0..own).fold(repeated, |axes, axis| {
        let at = new + axis;
        let is_one = x.dim(axis) == Some(&Dim::Known(1));
        let keeps = is_one || dims::surely_equal(x.dim(axis), out.dim(at));
        let reaches = at + target >= rank;
        if keeps && (target == rank || !reaches) { axes.each([(0, axis)], [(0, at)]) } else { axes }
    }))
}
