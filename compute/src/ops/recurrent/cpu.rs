//! Recurrent layers on the CPU: one matrix product for the inputs of all steps, then a small one
//! and the gates at each step.

use super::cells::Step;
use super::sizes::Sizes;
use super::weights::Weights;
use super::{Direction, Recurrent};
use crate::args::{optional, required};
use crate::error::{Error, Result};
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

/// A layer whose weights `[weight, recurrent weight]` are laid out; of `inputs` the others are read.
pub(super) fn run<T: Weights>(
    layer: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    sizes: &Sizes,
    weights: [&[T]; 2],
    outputs: &mut [Tensor],
) -> Result<()> {
    if sizes.hidden == 0 || sizes.batch == 0 {
        return Ok(());
    }
    let lengths = lengths(inputs, sizes)?;
    outputs[0].as_mut_slice::<T>()?.fill(T::ZERO);
    for direction in 0..sizes.directions {
        let of = |weight: &'_ [T]| {
            let words = weight.len() / sizes.directions;
            direction * words..(direction + 1) * words
        };
        let weights = weights.map(|weight| &weight[of(weight)]);
        one_way(layer, ctx, inputs, sizes, &lengths, direction, weights, outputs)?;
    }
    Ok(())
}

/// The number of steps of each sequence.
fn lengths(inputs: &[Option<TensorView<'_>>], sizes: &Sizes) -> Result<Vec<usize>> {
    let Some(given) = optional(inputs, 4) else { return Ok(vec![sizes.steps; sizes.batch]) };
    let one = |&n: &i32| {
        usize::try_from(n).ok().filter(|&n| n <= sizes.steps).ok_or_else(|| {
            let message = format!("a sequence's length is {n}, expected 0 to {}", sizes.steps);
            Error::invalid(message)
        })
    };
    given.as_slice::<i32>()?.iter().map(one).collect()
}

/// One direction, with its own weights.
#[expect(clippy::too_many_arguments, reason = "those of a run, and the direction's")]
fn one_way<T: Weights>(
    op: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    sizes: &Sizes,
    lengths: &[usize],
    direction: usize,
    [weight, recurrent]: [&[T]; 2],
    outputs: &mut [Tensor],
) -> Result<()> {
    let &Sizes { steps, batch, features, hidden, gates, .. } = sizes;
    let all = gates * hidden;
    let part = |i: usize, n: usize| {
        let slice = optional(inputs, i).map(TensorView::as_slice::<T>).transpose()?;
        Ok::<_, Error>(slice.map(|s| &s[direction * n..][..n]))
    };
    let x = required(inputs, 0)?.as_slice::<T>()?;
    let (bias, peepholes) = (part(3, 2 * all)?, part(7, 3 * hidden)?);
    let mut step = Step::new(op, sizes, direction, recurrent, bias, peepholes);

    let mut projected = ctx.scratch(T::DTYPE, [steps * batch, all])?;
    let projected = projected.as_mut_slice::<T>()?;
    let bias = step.projected_bias();
    T::multiply(ctx, (steps * batch, all, features), x, weight, Some(&bias), projected)?;
    for (i, state) in [(5, &mut step.hidden), (6, &mut step.cell_state)] {
        if let Some(initial) = optional(inputs, i) {
            let initial = initial.as_slice::<T>()?;
            for b in 0..batch {
                let from = &initial[sizes.state(direction, b) * hidden..][..hidden];
                state[b * hidden..][..hidden].copy_from_slice(from);
            }
        }
    }
    let backwards = op.direction == Direction::Reverse || direction == 1;
    for i in 0..steps {
        // A long sequence is one operator, and a run that is asked to end does not wait for it.
        ctx.check()?;
        // Backwards, a sequence that has not begun yet keeps its initial state.
        let t = if backwards { steps - 1 - i } else { i };
        step.run(ctx, projected, t)?;
        let y = outputs[0].as_mut_slice::<T>()?;
        for (b, _) in lengths.iter().enumerate().filter(|(_, n)| t < **n) {
            let new = step.accept(b);
            y[sizes.output(t, direction, b) * hidden..][..hidden].copy_from_slice(new);
        }
    }
    for (state, output) in [&step.hidden, &step.cell_state].into_iter().zip(&mut outputs[1..]) {
        let output = output.as_mut_slice::<T>()?;
        for b in 0..batch {
            let from = &state[b * hidden..][..hidden];
            output[sizes.state(direction, b) * hidden..][..hidden].copy_from_slice(from);
        }
    }
    Ok(())
}
