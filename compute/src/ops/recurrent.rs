//! Recurrent layers: RNN, GRU and LSTM.

mod activation;
mod cells;
mod cpu;
mod device;
mod packed;
mod sizes;
#[cfg(test)]
mod tests;
mod weights;

use crate::Axes;
use crate::args::{concrete, float, optional, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Hints, Step};
use lgp_memory::{DType, Dim, Shape, SymShape, Tensor, TensorType, TensorView};
use sizes::Sizes;
use std::ops::RangeInclusive;

pub use activation::Activation;
pub use packed::RecurrentPacked;

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

    /// Bytes of what the inputs of all steps add to the gates of all directions.
    fn projected_bytes(&self, x: &Shape, hidden: usize, size: usize) -> usize {
        let gates = self.direction.count() * self.cell.gates();
        let rows = x.iter().take(2).fold(size, |n, &d| n.saturating_mul(d));
        rows.saturating_mul(gates).saturating_mul(hidden)
    }

    /// The axes of the sequences, which are independent of each other.
    fn batch_axes(&self, inputs: &[Option<&ValueInfo>], outputs: usize) -> Axes {
        let (x, states, state) = if self.batch_first { (0, 0, 0) } else { (1, 2, 1) };
        let batch = [(0, x), (4, 0), (5, state), (6, state)];
        let batch = batch.into_iter().filter(|(i, _)| optional(inputs, *i).is_some());
        let made = (0..outputs).map(|o| (o, if o == 0 { states } else { state }));
        Axes::new().each(batch, made)
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
        self.batch_axes(inputs, outputs.len()).all([(0, 2), (1, 2)], [])
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
        let (Some(x), Some(recurrent), Some(info)) = (shape(0), shape(2), optional(inputs, 0))
        else {
            return 0;
        };
        let (features, hidden) = (x.get(2).copied(), recurrent.get(2).copied());
        let (features, hidden) = (features.unwrap_or(0), hidden.unwrap_or(0));
        let words = match info.ty.dtype {
            DType::F64 => weights::all_words::<f64>(self, features, hidden),
            _ => weights::all_words::<f32>(self, features, hidden),
        };
        let words =
            words.map_or(usize::MAX, |words| words.into_iter().fold(0, usize::saturating_add));
        let size = info.ty.dtype.size();
        self.projected_bytes(&x, hidden, size).saturating_add(words.saturating_mul(size))
    }

    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        if hints.on_device { Ok(None) } else { packed::prepared(self, inputs) }
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let mut outputs = allocated(self, ctx, inputs)?;
        let (x, recurrent) = (required(inputs, 0)?, required(inputs, 2)?);
        let sizes = Sizes::of(self, x.shape(), recurrent.shape()[2]);
        with_type!(x.dtype(), real T => {
            let [input, state] = weights::all_words::<T>(self, sizes.features, sizes.hidden)?;
            let mut input = ctx.scratch(x.dtype(), [input])?;
            let mut state = ctx.scratch(x.dtype(), [state])?;
            let given = [required(inputs, 1)?.as_slice::<T>()?, recurrent.as_slice::<T>()?];
            let to = [input.as_mut_slice()?, state.as_mut_slice()?];
            weights::lay_out(self, (sizes.features, sizes.hidden), given, to);
            let weights = [input.as_slice()?, state.as_slice()?];
            cpu::run::<T>(self, ctx, inputs, &sizes, weights, &mut outputs)
        })?;
        Ok(outputs)
    }
}

/// The outputs of a run, of the types that the operator infers.
fn allocated(op: &dyn Op, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
    concrete(op, inputs)?.into_iter().map(|(dtype, shape)| ctx.alloc(dtype, shape)).collect()
}
