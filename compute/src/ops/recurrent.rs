//! Recurrent layers: RNN, GRU and LSTM.

mod activation;
mod cells;
mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

pub use activation::Activation;

/// What a layer computes at each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// One gate: the new hidden state.
    Rnn,
    /// Gates in the order update, reset, hidden.
    Gru {
        /// Multiplies the hidden state's product, not the hidden state, by the reset gate.
        linear_before_reset: bool,
    },
    /// Gates in the order input, output, forget, cell.
    Lstm {
        /// The forget gate is one minus the input gate.
        input_forget: bool,
    },
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 3,
            Self::Lstm { .. } => 4,
        }
    }

    /// How many activation functions a direction has.
    #[must_use]
    pub fn activations(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 2,
            Self::Lstm { .. } => 3,
        }
    }

    fn is_lstm(self) -> bool {
        matches!(self, Self::Lstm { .. })
    }
}

/// Which way a layer walks through the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the first step on.
    Forward,
    /// From the last step of each sequence back.
    Reverse,
    /// Both, as two layers side by side.
    Bidirectional,
}

impl Direction {
    fn count(self) -> usize {
        if self == Self::Bidirectional { 2 } else { 1 }
    }
}

/// `RNN`, `GRU`, `LSTM`: inputs x `[steps, batch, in]`, the weight `[directions, gates · h, in]`,
/// the recurrent weight `[directions, gates · h, h]`, and optionally both biases
/// `[directions, 2 · gates · h]`, the sequences' lengths as i32 `[batch]`, the initial hidden state
/// `[directions, batch, h]`; for an LSTM also the initial cell state and the peepholes
/// `[directions, 3 · h]` (input, output, forget).
///
/// Outputs: the hidden states `[steps, directions, batch, h]`, the last one
/// `[directions, batch, h]`, and an LSTM's last cell state. Steps beyond a sequence's length are
/// zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrent {
    /// What is computed.
    pub cell: Cell,
    /// In which order.
    pub direction: Direction,
    /// The functions of each direction, [`Cell::activations`] for each.
    pub activations: Vec<Activation>,
    /// Bound of the activations' inputs.
    pub clip: Option<f32>,
    /// The batch is the first axis of x, of the states, and of the outputs.
    pub batch_first: bool,
}

impl Recurrent {
    /// A layer of a cell with its usual functions, forward, the steps first.
    #[must_use]
    pub fn new(cell: Cell) -> Self {
        let activations = match cell {
            Cell::Rnn => vec![Activation::Tanh],
            Cell::Gru { .. } => vec![Activation::Sigmoid, Activation::Tanh],
            Cell::Lstm { .. } => vec![Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        };
        let direction = Direction::Forward;
        Self { cell, direction, activations, clip: None, batch_first: false }
    }

    /// A state's shape.
    fn state(&self, batch: &Dim, hidden: &Dim) -> Vec<Dim> {
        let directions = Dim::Known(self.direction.count());
        if self.batch_first {
            vec![batch.clone(), directions, hidden.clone()]
        } else {
            vec![directions, batch.clone(), hidden.clone()]
        }
    }
}

/// Checks an input against the dtype and shape that it must have.
fn check(
    inputs: &[Option<&ValueInfo>],
    i: usize,
    what: &str,
    dtype: DType,
    shape: &[Dim],
) -> Result<()> {
    let Some(input) = optional(inputs, i) else { return Ok(()) };
    same_dtype(what, dtype, input.ty.dtype)?;
    rank(what, input, shape.len())?;
    let given = input.sym_shape().unwrap_or_default();
    for (axis, (given, want)) in given.iter().zip(shape).enumerate() {
        dims::expect(&format!("dimension {axis} of {what}"), want, given)?;
    }
    Ok(())
}

impl Op for Recurrent {
    fn name(&self) -> &'static str {
        match self.cell {
            Cell::Rnn => "RNN",
            Cell::Gru { .. } => "GRU",
            Cell::Lstm { .. } => "LSTM",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=if self.cell.is_lstm() { 8 } else { 6 }
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let (weight, recurrent) = (required(inputs, 1)?, required(inputs, 2)?);
        float(x.ty.dtype)?;
        let (directions, gates) = (self.direction.count(), self.cell.gates());
        let expected = directions * self.cell.activations();
        if self.activations.len() != expected {
            let message = format!("{} activations, expected {expected}", self.activations.len());
            return Err(Error::invalid(message));
        }
        rank("the input", x, 3)?;
        rank("the weight", weight, 3)?;
        rank("the recurrent weight", recurrent, 3)?;
        let unknown = [Dim::Unknown, Dim::Unknown, Dim::Unknown];
        let of = |info: &ValueInfo| match info.sym_shape() {
            Some([a, b, c]) => [a.clone(), b.clone(), c.clone()],
            _ => unknown.clone(),
        };
        let [a, b, features] = of(x);
        let (steps, batch) = if self.batch_first { (b, a) } else { (a, b) };
        let [_, _, hidden] = of(recurrent);
        let (count, dtype) = (Dim::Known(directions), x.ty.dtype);
        let rows = |n: usize| dims::mul(&hidden, &Dim::Known(n));
        let all = rows(gates)?;
        check(inputs, 1, "the weight", dtype, &[count.clone(), all.clone(), features])?;
        let shape = [count.clone(), all, hidden.clone()];
        check(inputs, 2, "the recurrent weight", dtype, &shape)?;
        check(inputs, 3, "the bias", dtype, &[count.clone(), rows(2 * gates)?])?;
        check(inputs, 4, "sequence_lens", DType::I32, std::slice::from_ref(&batch))?;
        let state = self.state(&batch, &hidden);
        check(inputs, 5, "the initial hidden state", dtype, &state)?;
        if self.cell.is_lstm() {
            check(inputs, 6, "the initial cell state", dtype, &state)?;
            check(inputs, 7, "the peepholes", dtype, &[count.clone(), rows(3)?])?;
        }
        let y = if self.batch_first {
            vec![batch, steps, count, hidden]
        } else {
            vec![steps, count, batch, hidden]
        };
        let info = |shape| ValueInfo::of(TensorType { dtype, shape: Some(SymShape(shape)) });
        let mut out = vec![info(y), info(state.clone())];
        if self.cell.is_lstm() {
            out.push(info(state));
        }
        Ok(out)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let (x, states, state) = if self.batch_first { (0, 0, 0) } else { (1, 2, 1) };
        let batch = [(0, x), (4, 0), (5, state), (6, state)];
        let batch = batch.into_iter().filter(|(i, _)| optional(inputs, *i).is_some());
        let made = (0..outputs.len()).map(|o| (o, if o == 0 { states } else { state }));
        Axes::new().each(batch, made).all([(0, 2), (1, 2)], [])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        let size = |axis| optional(inputs, 0).and_then(|x| x.dim(axis)?.known());
        let rows = [0, 1]
            .into_iter()
            .fold(1, |n: u64, axis| n.saturating_mul(size(axis).unwrap_or(0) as u64));
        let weights = [1, 2].into_iter().filter_map(|i| optional(inputs, i));
        let products = weights.fold(0, |n: u64, w| n.saturating_add(crate::cost::elements(w)));
        rows.saturating_mul(products)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |i: usize| optional(inputs, i).and_then(|info| info.ty.concrete_shape());
        let (Some(x), Some(weight), Some(info)) = (shape(0), shape(1), optional(inputs, 0)) else {
            return 0;
        };
        // What every step adds to the gates of one direction, and the weight of its states laid out.
        let size = info.ty.dtype.size();
        let dims = x.iter().take(2).chain(weight.get(1));
        let projected = dims.fold(size, |n, &d| n.saturating_mul(d));
        let hidden = shape(2).and_then(|states| states.get(2).copied()).unwrap_or(0);
        let words = cells::words(self.cell, self.cell.gates(), hidden).unwrap_or(usize::MAX);
        projected.saturating_add(words.saturating_mul(size))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
