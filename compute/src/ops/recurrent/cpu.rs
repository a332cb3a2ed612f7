//! Recurrent layers on the CPU: one matrix product for the inputs of all steps, then a small one
//! and the gates at each step.

use super::cells::{Step, Weights};
use super::{Direction, Recurrent};
use crate::args::{concrete, optional, required};
use crate::error::{Error, Result};
use crate::matrix::{Mat, product};
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let mut outputs = Vec::new();
    for (dtype, shape) in concrete(op, inputs)? {
        outputs.push(ctx.alloc(dtype, shape)?);
    }
    with_type!(required(inputs, 0)?.dtype(), real T => {
        layers::<T>(op, ctx, inputs, &mut outputs)
    })?;
    Ok(outputs)
}

/// The sizes of a layer.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) features: usize,
    pub(super) hidden: usize,
    pub(super) gates: usize,
    pub(super) directions: usize,
    batch_first: bool,
}

impl Sizes {
    /// The row of a step of a sequence in x.
    pub(super) fn row(&self, step: usize, sequence: usize) -> usize {
        if self.batch_first { sequence * self.steps + step } else { step * self.batch + sequence }
    }

    /// How many rows are between two sequences at the same step.
    pub(super) fn stride(&self) -> usize {
        if self.batch_first { self.steps } else { 1 }
    }

    /// The row of a hidden state in the first output.
    fn output(&self, step: usize, direction: usize, sequence: usize) -> usize {
        if self.batch_first {
            (sequence * self.steps + step) * self.directions + direction
        } else {
            (step * self.directions + direction) * self.batch + sequence
        }
    }

    /// The row of a state.
    fn state(&self, direction: usize, sequence: usize) -> usize {
        if self.batch_first {
            sequence * self.directions + direction
        } else {
            direction * self.batch + sequence
        }
    }
}

fn layers<T: Weights>(
    op: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    outputs: &mut [Tensor],
) -> Result<()> {
    let (x, recurrent) = (required(inputs, 0)?, required(inputs, 2)?);
    let (first, second) = (x.shape()[0], x.shape()[1]);
    let (steps, batch) = if op.batch_first { (second, first) } else { (first, second) };
    let sizes = Sizes {
        steps,
        batch,
        features: x.shape()[2],
        hidden: recurrent.shape()[2],
        gates: op.cell.gates(),
        directions: op.direction.count(),
        batch_first: op.batch_first,
    };
    if sizes.hidden == 0 || batch == 0 {
        return Ok(());
    }
    let lengths = lengths(inputs, &sizes)?;
    outputs[0].as_mut_slice::<T>()?.fill(T::ZERO);
    for direction in 0..sizes.directions {
        layer::<T>(op, ctx, inputs, &sizes, &lengths, direction, outputs)?;
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

fn layer<T: Weights>(
    op: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    sizes: &Sizes,
    lengths: &[usize],
    direction: usize,
    outputs: &mut [Tensor],
) -> Result<()> {
    let &Sizes { steps, batch, features, hidden, gates, .. } = sizes;
    let all = gates * hidden;
    let part = |i: usize, n: usize| {
        let slice = optional(inputs, i).map(TensorView::as_slice::<T>).transpose()?;
        Ok::<_, Error>(slice.map(|s| &s[direction * n..][..n]))
    };
    let x = required(inputs, 0)?.as_slice::<T>()?;
    let weight = part(1, all * features)?.unwrap_or_default();
    let recurrent = part(2, all * hidden)?.unwrap_or_default();
    let bias = part(3, 2 * all)?;
    let mut step = Step::new(ctx, op, sizes, direction, recurrent, bias, part(7, 3 * hidden)?)?;

    let mut projected = ctx.scratch(T::DTYPE, [steps * batch, all])?;
    let projected = projected.as_mut_slice::<T>()?;
    let bias = step.projected_bias();
    projected.chunks_exact_mut(all).for_each(|row| row.copy_from_slice(&bias));
    let (x, weight) = (Mat::rows(x, features), Mat::rows(weight, features).t());
    product(ctx, (steps * batch, all, features), x, weight, projected, all, true)?;
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
