//! The sizes of a run, and where rows lie.

use super::{Recurrent, weights};
use lgp_memory::Shape;

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
    /// Those of a layer of so many hidden units on an input of rank 3.
    pub(super) fn of(layer: &Recurrent, x: &Shape, hidden: usize) -> Self {
        let (steps, batch) = if layer.batch_first { (x[1], x[0]) } else { (x[0], x[1]) };
        Self {
            steps,
            batch,
            features: x[2],
            hidden,
            gates: layer.cell.gates(),
            directions: layer.direction.count(),
            batch_first: layer.batch_first,
        }
    }

    /// Columns of the product of all states that each step begins with.
    pub(super) fn first_columns(&self, layer: &Recurrent) -> usize {
        weights::first_columns(layer.cell, self.hidden)
    }

    /// The row of a step of a sequence in x.
    pub(super) fn row(&self, step: usize, sequence: usize) -> usize {
        if self.batch_first { sequence * self.steps + step } else { step * self.batch + sequence }
    }

    /// How many rows are between two sequences at the same step.
    pub(super) fn stride(&self) -> usize {
        if self.batch_first { self.steps } else { 1 }
    }

    /// The row of a hidden state in the first output.
    pub(super) fn output(&self, step: usize, direction: usize, sequence: usize) -> usize {
        if self.batch_first {
            (sequence * self.steps + step) * self.directions + direction
        } else {
            (step * self.directions + direction) * self.batch + sequence
        }
    }

    /// The row of a state.
    pub(super) fn state(&self, direction: usize, sequence: usize) -> usize {
        if self.batch_first {
            sequence * self.directions + direction
        } else {
            direction * self.batch + sequence
        }
    }
}
