//! A recurrent layer whose weights were laid out when the model was loaded. No operator of ONNX:
//! the preparation of constants puts it in place of `RNN`, `GRU` and `LSTM`.

use super::sizes::Sizes;
use super::{Recurrent, allocated, check, cpu, weights};
use crate::Axes;
use crate::args::{optional, required};
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Operand, Step, operands};
use lgp_memory::{DType, Dim, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// A [`Recurrent`] layer in f32 with its inputs, but both weights as words laid out for its
/// products: those of the inputs, and those of the states, each of all directions.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentPacked {
    /// The layer.
    pub layer: Recurrent,
    /// Elements of each step's input.
    pub features: usize,
    /// Hidden units of a direction.
    pub hidden: usize,
}

impl RecurrentPacked {
    /// The inputs with both weights as the layer has them, of which `of` shows the type.
    fn with_plain<R>(
        &self,
        inputs: &[Option<&ValueInfo>],
        of: impl FnOnce(&[Option<&ValueInfo>]) -> R,
    ) -> R {
        let (directions, gates) = (self.layer.direction.count(), self.layer.cell.gates());
        let rows = gates.saturating_mul(self.hidden);
        let plain = [self.features, self.hidden].map(|columns| {
            let shape = [directions, rows, columns].into();
            ValueInfo::of(TensorType::concrete(DType::F32, &shape))
        });
        let mut inputs = inputs.to_vec();
        for (input, plain) in inputs.iter_mut().skip(1).zip(&plain) {
            *input = input.map(|_| plain);
        }
        of(&inputs)
    }
}

impl Op for RecurrentPacked {
    fn name(&self) -> &'static str {
        match self.layer.cell {
            super::Cell::Rnn => "RNNPacked",
            super::Cell::Gru { .. } => "GRUPacked",
            super::Cell::Lstm { .. } => "LSTMPacked",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        self.layer.arity()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let words = weights::all_words::<f32>(&self.layer, self.features, self.hidden)?;
        for (i, words) in (1..).zip(words) {
            required(inputs, i)?;
            check(inputs, i, "the laid-out weight", DType::F32, &[Dim::Known(words)])?;
        }
        self.with_plain(inputs, |inputs| self.layer.infer_types(inputs))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        self.layer.batch_axes(inputs, outputs.len())
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.with_plain(inputs, |inputs| self.layer.multiply_adds(inputs, outputs))
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let x = optional(inputs, 0).and_then(|info| info.ty.concrete_shape());
        x.map_or(0, |x| self.layer.projected_bytes(&x, self.hidden, DType::F32.size()))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let mut outputs = allocated(self, ctx, inputs)?;
        let sizes = Sizes::of(&self.layer, required(inputs, 0)?.shape(), self.hidden);
        let weights = [required(inputs, 1)?.as_slice()?, required(inputs, 2)?.as_slice()?];
        cpu::run::<f32>(&self.layer, ctx, inputs, &sizes, weights, &mut outputs)?;
        Ok(outputs)
    }
}

/// The layer with its constant f32 weights laid out.
pub(super) fn prepared(layer: &Recurrent, inputs: &[Option<&ValueInfo>]) -> Result<Option<Step>> {
    let [Some(x), Some(weight), Some(recurrent), ..] = inputs else { return Ok(None) };
    let constant = |info: &ValueInfo| {
        let constant = info.constant.clone();
        constant.filter(|w| w.dtype() == DType::F32 && w.shape().rank() == 3)
    };
    let (Some(weight), Some(recurrent)) = (constant(weight), constant(recurrent)) else {
        return Ok(None);
    };
    if x.ty.dtype != DType::F32 {
        return Ok(None);
    }
    // The layout relies on shapes that belong together.
    layer.infer_types(inputs)?;
    let (features, hidden) = (weight.shape()[2], recurrent.shape()[2]);
    let [input, state] = weights::all_words::<f32>(layer, features, hidden)?;
    let mut input = Tensor::zeros(DType::F32, [input])?;
    let mut state = Tensor::zeros(DType::F32, [state])?;
    let given = [weight.as_slice::<f32>()?, recurrent.as_slice::<f32>()?];
    let to = [input.as_mut_slice()?, state.as_mut_slice()?];
    weights::lay_out(layer, (features, hidden), given, to);
    let mut read = operands(inputs);
    read[1] = Operand::Constant(input);
    read[2] = Operand::Constant(state);
    let op = RecurrentPacked { layer: layer.clone(), features, hidden };
    Ok(Some(Step::new(op, read)))
}
