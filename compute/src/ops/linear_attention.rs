//! Attention as a recurrence over a matrix of state.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// `LinearAttention`: inputs query `[batch, length, query heads · k]`, key
/// `[batch, length, key heads · k]`, value `[batch, length, key heads · v]`, and optionally the
/// state `[batch, key heads, k, v]`, the logarithm of its decay (a number a head or a number a
/// key's element), and the rate of its updates (a number a head, or one for all).
///
/// With a decay the state shrinks first. With a rate, the value that the state already holds for
/// the key is subtracted from the new value, and the difference times the rate is written.
///
/// Outputs `[batch, length, query heads · v]` and the state. f16, bf16 and f32, computed in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearAttention {
    /// Heads of the query; a multiple of the key's.
    pub query_heads: usize,
    /// Heads of key and value.
    pub key_heads: usize,
    /// Factor of the output; `1 / sqrt(k)` when absent.
    pub scale: Option<f32>,
    /// Whether the state decays: the fifth input is then required, otherwise refused.
    pub gated: bool,
    /// Whether the held value is subtracted: the sixth input is then required, otherwise refused.
    pub delta: bool,
}

impl LinearAttention {
    fn check_rule(&self, inputs: &[Option<&ValueInfo>]) -> Result<()> {
        for (i, what, wanted) in [(4, "decay", self.gated), (5, "beta", self.delta)] {
            if optional(inputs, i).is_some() != wanted {
                let wanted = if wanted { "needs" } else { "has no" };
                return Err(Error::invalid(format!("this update rule {wanted} {what}")));
            }
        }
        let (q, k) = (self.query_heads, self.key_heads);
        if q == 0 || k == 0 || q % k != 0 {
            let message = format!("{k} heads of the key do not divide {q} heads of the query");
            return Err(Error::invalid(message));
        }
        for info in inputs.iter().flatten() {
            float(info.ty.dtype)?;
            if info.ty.dtype == DType::F64 {
                return Err(Error::invalid("dtype is f64, expected f32, f16 or bf16"));
            }
        }
        Ok(())
    }

    /// Checks decay and rate.
    fn check_gates(&self, inputs: &[Option<&ValueInfo>], query: &[Dim; 3]) -> Result<()> {
        let [batch, length, size] = query;
        let all = dims::mul(&Dim::Known(self.key_heads), size)?.known();
        for (i, what) in [(4, "decay"), (5, "beta")] {
            let Some(info) = optional(inputs, i) else { continue };
            rank(what, info, 3)?;
            let Some([b, l, width]) = info.sym_shape() else { continue };
            dims::expect(&format!("the batch of {what}"), batch, b)?;
            dims::expect(&format!("the length of {what}"), length, l)?;
            let Some(width) = width.known() else { continue };
            let other = if i == 4 { all } else { Some(1) };
            if width != self.key_heads && other.is_some_and(|n| n != width) {
                return Err(Error::invalid(format!("{what} has {width} entries a step")));
            }
        }
        Ok(())
    }
}

/// The dimensions batch, length and size per head of an input of rank 3.
fn form(info: &ValueInfo, what: &str, heads: usize) -> Result<[Dim; 3]> {
    rank(what, info, 3)?;
    match info.sym_shape() {
        Some([batch, length, hidden]) => {
            let size = dims::quotient(std::slice::from_ref(hidden), &[Dim::Known(heads)])?;
            Ok([batch.clone(), length.clone(), size])
        }
        _ => Ok([Dim::Unknown, Dim::Unknown, Dim::Unknown]),
    }
}

impl Op for LinearAttention {
    fn name(&self) -> &'static str {
        "LinearAttention"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=6
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.check_rule(inputs)?;
        let dtype = required(inputs, 0)?.ty.dtype;
        let q = form(required(inputs, 0)?, "the query", self.query_heads)?;
        let k = form(required(inputs, 1)?, "the key", self.key_heads)?;
        let v = form(required(inputs, 2)?, "the value", self.key_heads)?;
        let [batch, length, size] = &q;
        for (what, form) in [("the key", &k), ("the value", &v)] {
            dims::expect(&format!("the batch of {what}"), batch, &form[0])?;
            dims::expect(&format!("the length of {what}"), length, &form[1])?;
        }
        dims::expect("the key's size", size, &k[2])?;
        self.check_gates(inputs, &q)?;
        let heads = Dim::Known(self.key_heads);
        let state = vec![batch.clone(), heads, size.clone(), v[2].clone()];
        let mut kept = dtype;
        if let Some(past) = optional(inputs, 3) {
            kept = past.ty.dtype;
            rank("the state", past, 4)?;
            for (want, given) in state.iter().zip(past.sym_shape().unwrap_or_default()) {
                dims::expect("a dimension of the state", want, given)?;
            }
        }
        let hidden = dims::mul(&Dim::Known(self.query_heads), &v[2])?;
        let info = |dtype, shape| ValueInfo::of(TensorType { dtype, shape: Some(SymShape(shape)) });
        let y = vec![batch.clone(), length.clone(), hidden];
        Ok(vec![info(dtype, y), info(kept, state)])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let there = |i: &usize| optional(inputs, *i).is_some();
        let batch = (0..inputs.len()).filter(there).map(|i| (i, 0));
        Axes::new().each(batch, (0..outputs.len()).map(|o| (o, 0)))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let length = optional(inputs, 0).and_then(|query| query.dim(1)?.known()).unwrap_or(0);
        let groups = self.query_heads.checked_div(self.key_heads).unwrap_or(0);
        // At each step each query reads the state, a key writes it, and so do decay and correction.
        let rule = 1 + usize::from(self.gated) + usize::from(self.delta);
        let state = outputs.get(1).map_or(0, crate::cost::elements);
        state.saturating_mul(length as u64).saturating_mul((groups + rule) as u64)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let Ok(outputs) = self.infer(inputs) else { return 0 };
        let [y, state] = &outputs[..] else { return 0 };
        // State and output of each head, and copies of tensors that are not f32.
        let all = inputs.iter().copied().flatten().chain([y, state]);
        let copies = all.filter(|info| info.ty.dtype != DType::F32);
        copies
            .chain([y, state])
            .map(|info| info.bytes_in(DType::F32))
            .fold(0, usize::saturating_add)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
