//! Causal depthwise convolution that carries its state from call to call.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::window;
use lgp_memory::{Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// `CausalConvWithState`: inputs x `[batch, channels, length]`, weight `[channels, 1, k]`, bias
/// `[channels]` (optional), the state `[batch, channels, k - 1]` (optional, zeros).
///
/// Outputs the convolution, which has x's shape, and the last `k - 1` elements of state and x, the
/// next call's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CausalConv;

impl Op for CausalConv {
    fn name(&self) -> &'static str {
        "CausalConvWithState"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
        let dtype = x.ty.dtype;
        float(dtype)?;
        same_dtype("weight", dtype, weight.ty.dtype)?;
        rank("the input", x, 3)?;
        rank("weight", weight, 3)?;
        let (batch, mut channels) = match x.sym_shape() {
            Some([batch, channels, _]) => (batch.clone(), channels.clone()),
            _ => (Dim::Unknown, Dim::Unknown),
        };
        let mut carried = Dim::Unknown;
        if let Some([c, one, k]) = weight.sym_shape() {
            channels = dims::unify("the first dimension of weight", &channels, c)?;
            dims::expect("the second dimension of weight", &Dim::Known(1), one)?;
            if let Dim::Known(k) = k {
                let state = k.checked_sub(1);
                carried = Dim::Known(state.ok_or_else(|| Error::invalid("k is 0"))?);
            }
        }
        let state = vec![batch, channels.clone(), carried];
        for (i, what, shape) in [(2, "bias", &[channels][..]), (3, "the state", &state[..])] {
            let Some(input) = optional(inputs, i) else { continue };
            same_dtype(what, dtype, input.ty.dtype)?;
            rank(what, input, shape.len())?;
            for (want, given) in shape.iter().zip(input.sym_shape().unwrap_or_default()) {
                dims::expect(&format!("a dimension of {what}"), want, given)?;
            }
        }
        let state = TensorType { dtype, shape: Some(SymShape(state)) };
        Ok(vec![ValueInfo::of(x.ty.clone()), ValueInfo::of(state)])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let state = |axis: usize| optional(inputs, 3).map(|_| (3, axis));
        let bias = optional(inputs, 2).map(|_| (2, 0));
        let channel = [(0, 1), (1, 0)].into_iter().chain(bias).chain(state(1));
        Axes::new()
            .each([(0, 0)].into_iter().chain(state(0)), [(0, 0), (1, 0)])
            .each(channel, [(0, 1), (1, 1)])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        window::multiply_adds(outputs.first(), optional(inputs, 1).copied())
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
