//! Recurrent layers on the CPU: one matrix product for the inputs of all steps, then a small one
//! and the gates at each step.

use super::cells::Step;
use super::sizes::Sizes;
use super::weights::Weights;
use super::{Direction, Recurrent};
use crate::args::{optional, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::par::{Failure, Shared};
use lgp_memory::{Tensor, TensorView};

/// A layer whose weights `[weight, recurrent weight]` are laid out; of `inputs` the others are read.
pub(super) fn run<T: Weights>(
    layer: &Recurrent,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    sizes: &Sizes,
    [weight, recurrent]: [&[T]; 2],
    outputs: &mut [Tensor],
) -> Result<()> {
    let &Sizes { steps, batch, hidden, gates, directions, .. } = sizes;
    if hidden == 0 || batch == 0 {
        return Ok(());
    }
    let lengths = lengths(inputs, sizes)?;
    let rows = steps * batch * gates * hidden;
    let mut projected = ctx.scratch(T::DTYPE, [directions, rows])?;
    let mut projected = projected.as_mut_slice::<T>()?.chunks_exact_mut(rows.max(1));
    let mut ways = Vec::with_capacity(directions);
    for direction in 0..directions {
        let of = |weight: &[T]| {
            let words = weight.len() / directions;
            direction * words..(direction + 1) * words
        };
        let weights = [&weight[of(weight)], &recurrent[of(recurrent)]];
        let projected = projected.next().unwrap_or_default();
        ways.push(Way::new(layer, ctx, inputs, sizes, direction, weights, projected)?);
    }
    let y = outputs[0].as_mut_slice::<T>()?;
    y.fill(T::ZERO);
    walk(ctx, &mut ways, sizes, &lengths, y)?;
    for way in &ways {
        for (state, output) in
            [&way.step.hidden, &way.step.cell_state].into_iter().zip(&mut outputs[1..])
        {
            let output = output.as_mut_slice::<T>()?;
            for (b, from) in state.chunks_exact(hidden).enumerate() {
                output[sizes.state(way.direction, b) * hidden..][..hidden].copy_from_slice(from);
            }
        }
    }
    Ok(())
}

/// Walks through the sequences, which writes the hidden states `y` of all steps: both ways at the
/// same time where the threads are too few to gain more from sharing the products of a step. With
/// two threads that was measured; that four still gain is an assumption.
fn walk<T: Weights>(
    ctx: &Context,
    ways: &mut [Way<'_, T>],
    sizes: &Sizes,
    lengths: &[usize],
    y: &mut [T],
) -> Result<()> {
    let y = Shared::new(y);
    let directions = ways.len();
    let products = sizes.batch * sizes.gates * sizes.hidden * sizes.hidden;
    if directions == 1 || ctx.threads() == 1 || ctx.parts(products, products) > 2 * directions {
        return ways.iter_mut().try_for_each(|way| way.walk(ctx, sizes, lengths, &y));
    }
    let (ways, alone, failure) = (Shared::new(ways), ctx.on_one_thread(), Failure::default());
    ctx.parallel(directions, |i| {
        // SAFETY: each part runs once and has a way of its own.
        let way = unsafe { ways.slice(i..i + 1) };
        failure.note(way[0].walk(&alone, sizes, lengths, &y));
    });
    failure.result()
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

/// One direction of a layer, and what the inputs of all steps add to its gates.
struct Way<'a, T> {
    direction: usize,
    backwards: bool,
    step: Step<'a, T>,
    /// In the rows of x.
    projected: &'a mut [T],
}

impl<'a, T: Weights> Way<'a, T> {
    /// Computes `projected` and takes the initial states. The weights `[weight, recurrent weight]`
    /// are those of the direction.
    fn new(
        op: &'a Recurrent,
        ctx: &Context,
        inputs: &[Option<TensorView<'a>>],
        sizes: &Sizes,
        direction: usize,
        [weight, recurrent]: [&'a [T]; 2],
        projected: &'a mut [T],
    ) -> Result<Self> {
        let &Sizes { steps, batch, features, hidden, gates, .. } = sizes;
        let all = gates * hidden;
        let part = |i: usize, n: usize| {
            let slice = optional(inputs, i).map(TensorView::as_slice::<T>).transpose()?;
            Ok::<_, Error>(slice.map(|s| &s[direction * n..][..n]))
        };
        let x = required(inputs, 0)?.as_slice::<T>()?;
        let (bias, peepholes) = (part(3, 2 * all)?, part(7, 3 * hidden)?);
        let mut step = Step::new(op, sizes, direction, recurrent, bias, peepholes);
        let bias = step.projected_bias();
        T::multiply(ctx, (steps * batch, all, features), x, weight, Some(&bias), projected)?;
        for (i, state) in [(5, &mut step.hidden), (6, &mut step.cell_state)] {
            let Some(initial) = optional(inputs, i) else { continue };
            let initial = initial.as_slice::<T>()?;
            for (b, state) in state.chunks_exact_mut(hidden).enumerate() {
                let from = &initial[sizes.state(direction, b) * hidden..][..hidden];
                state.copy_from_slice(from);
            }
        }
        let backwards = op.direction == Direction::Reverse || direction == 1;
        Ok(Self { direction, backwards, step, projected })
    }

    /// Runs all steps. Of `y` the rows of this direction alone are written.
    fn walk(
        &mut self,
        ctx: &Context,
        sizes: &Sizes,
        lengths: &[usize],
        y: &Shared<'_, T>,
    ) -> Result<()> {
        let &Sizes { steps, hidden, .. } = sizes;
        for i in 0..steps {
            // A long sequence is one operator, and a run that is asked to end does not wait for it.
            ctx.check()?;
            // Backwards, a sequence that has not begun yet keeps its initial state.
            let t = if self.backwards { steps - 1 - i } else { i };
            self.step.run(ctx, self.projected, t)?;
            for (b, _) in lengths.iter().enumerate().filter(|(_, n)| t < **n) {
                let row = sizes.output(t, self.direction, b) * hidden;
                // SAFETY: no two directions share a row, and this part is the only one of its
                // direction.
                let to = unsafe { y.slice(row..row + hidden) };
                to.copy_from_slice(self.step.accept(b));
            }
        }
        Ok(())
    }
}
