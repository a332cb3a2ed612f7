//! Tile on the CPU: each axis becomes two, of which the outer is broadcast.

use super::Tile;
use crate::args::{concrete_one, integers, required};
use crate::error::{Error, Result};
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Shape, Tensor, TensorView};

pub(super) fn run(
    op: &Tile,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let repeats = integers(&required(inputs, 1)?.to_tensor()?)?;
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for (&dim, repeat) in x.shape().iter().zip(repeats) {
        let repeat = usize::try_from(repeat)
            .map_err(|_| Error::invalid(format!("repeat {repeat} is negative")))?;
        from.extend([1, dim]);
        to.extend([repeat, dim]);
    }
    let view = Layout::contiguous(&Shape::from(from))?.broadcast(&Shape::from(to))?;
    Ok(vec![strided(ctx, x, &view)?.reshape(shape)?])
}
