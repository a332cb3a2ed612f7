//! Repeats a tensor along its axes.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{optional, output_moved, rank, required};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Tile`: inputs data and the repeats (i64, one an axis).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tile;

impl Op for Tile {
    fn name(&self) -> &'static str {
        "Tile"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, repeats) = (required(inputs, 0)?, required(inputs, 1)?);
        rank("repeats", repeats, 1)?;
        let repeats = repeats.target_shape()?;
        let shape = match (x.sym_shape(), repeats) {
            (Some(x), Some(repeats)) => {
                if x.len() != repeats.len() {
                    let message = format!("{} repeats for rank {}", repeats.len(), x.len());
                    return Err(Error::invalid(message));
                }
                let product = |(x, n): (&Dim, &Dim)| dims::mul(x, n);
                Some(x.iter().zip(&repeats).map(product).collect::<Result<_>>()?)
            }
            (Some(x), None) => Some(vec![Dim::Unknown; x.len()]),
            _ => None,
        };
        output_moved(self, inputs, 0..1, shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let repeats = optional(inputs, 1).and_then(|repeats| repeats.contents());
        let Some(repeats) = repeats else { return Axes::new() };
        let repeated = |axis: &usize| repeats[*axis] != Dim::Known(1);
        let repeated: Vec<usize> = (0..repeats.len()).filter(repeated).collect();
        Axes::each_but(&repeated, inputs, outputs.len())
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
