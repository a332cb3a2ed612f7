//! Reorders axes.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{optional, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Transpose`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transpose {
    /// Input axis of each output axis; reversed when absent.
    pub perm: Option<Vec<usize>>,
}

impl Transpose {
    /// The permutation for a tensor of a given rank.
    fn perm(&self, rank: usize) -> Result<Vec<usize>> {
        let Some(perm) = &self.perm else { return Ok((0..rank).rev().collect()) };
        let mut sorted = perm.clone();
        sorted.sort_unstable();
        if sorted.into_iter().eq(0..rank) {
            return Ok(perm.clone());
        }
        let message = format!("perm is {perm:?}, expected each of {rank} axes once");
        Err(Error::invalid(message))
    }
}

impl Op for Transpose {
    fn name(&self) -> &'static str {
        "Transpose"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let shape = match x.sym_shape() {
            Some(dims) => Some(self.perm(dims.len())?.iter().map(|&i| dims[i].clone()).collect()),
            None => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank());
        let Some(Ok(perm)) = rank.map(|rank| self.perm(rank)) else { return Axes::new() };
        let places = perm.into_iter().enumerate();
        places.fold(Axes::new(), |axes, (to, from)| axes.each([(0, from)], [(0, to)]))
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
