//! Turns ONNX Runtime's forms of an attention mask into a mask that is added to the scores.

#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, optional, output, rank, required, same_dtype};
use crate::dims::{self, surely_equal};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// The mask of `Attention` and `MultiHeadAttention` of `com.microsoft`.
///
/// Inputs: the mask (i32), the query `[batch, length, …]`, the key `[batch, keys, …]` or
/// `[batch, heads, keys, size]`, and the past key `[batch, heads, past, size]` (optional). The mask is
/// one of
///
/// - `[batch]`: where each sequence's keys end;
/// - `[2 · batch]`: where the keys end, then where they start;
/// - `[batch, keys]`, past keys included: more than 0 for a seen key; `[batch or 1, 1]` hides none;
/// - `[batch, length, keys]`, the same for each query.
///
/// The output is f32 `[batch, 1, length or 1, keys]`: 0 for a seen key, `hidden` for a hidden one.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionMask {
    /// The number that is added to the scores of hidden keys.
    pub hidden: f32,
}

impl AttentionMask {
    /// The sizes of batch, queries and keys, past keys included.
    fn sizes(inputs: &[Option<&ValueInfo>]) -> Result<[Dim; 3]> {
        let (batch, length) = match required(inputs, 1)?.sym_shape() {
            None => (Dim::Unknown, Dim::Unknown),
            Some([batch, length, _]) => (batch.clone(), length.clone()),
            Some(dims) => {
                let message = format!("the query has rank {}, expected 3", dims.len());
                return Err(Error::invalid(message));
            }
        };
        let new = match required(inputs, 2)?.sym_shape() {
            None => Dim::Unknown,
            Some([_, keys, _] | [_, _, keys, _]) => keys.clone(),
            Some(dims) => {
                let message = format!("the key has rank {}, expected 3 or 4", dims.len());
                return Err(Error::invalid(message));
            }
        };
        let Some(past) = optional(inputs, 3) else { return Ok([batch, length, new]) };
        rank("the past key", past, 4)?;
        let keys = match past.sym_shape() {
            Some([_, _, past, _]) => dims::add(past, &new)?,
            _ => Dim::Unknown,
        };
        Ok([batch, length, keys])
    }

    /// The axes of batch, queries and keys that the mask surely has; `None` unless its first
    /// axis is surely the batch.
    fn mask_axes(inputs: &[Option<&ValueInfo>]) -> Option<Axes> {
        let [batch, _, keys] = Self::sizes(inputs).ok()?;
        let mask = optional(inputs, 0)?.sym_shape()?;
        if !surely_equal(mask.first(), Some(&batch)) {
            return None;
        }
        let past = optional(inputs, 3).map(|_| (3, 0));
        let sequences = [(0, 0), (1, 0), (2, 0)].into_iter().chain(past);
        let mut axes = Axes::new().each(sequences, [(0, 0)]);
        if mask.len() == 3 {
            axes = axes.each([(0, 1), (1, 1)], [(0, 2)]);
        }
        // With a past, no input has all keys: past and new keys are separate inputs.
        if mask.len() > 1 && past.is_none() && surely_equal(mask.last(), Some(&keys)) {
            let key = optional(inputs, 2)?.rank()?.checked_sub(2)?;
            axes = axes.each([(0, mask.len() - 1), (2, key)], [(0, 3)]);
        }
        Some(axes)
    }
}

impl Op for AttentionMask {
    fn name(&self) -> &'static str {
        "AttentionMask"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let mask = required(inputs, 0)?;
        same_dtype("the mask", DType::I32, mask.ty.dtype)?;
        let [batch, length, keys] = Self::sizes(inputs)?;
        let Some(given) = mask.sym_shape() else { return Ok(output(DType::F32, None)) };
        let mut rows = Dim::Known(1);
        match given {
            [n] => {
                if let (Some(n), Some(batch)) = (n.known(), batch.known())
                    && n != batch
                    && batch.checked_mul(2) != Some(n)
                {
                    let message = format!("a mask of shape [{n}] for {batch} sequences");
                    return Err(Error::invalid(message));
                }
            }
            [b, one] if b.known() == Some(1) && one.known() == Some(1) => {}
            [b, n] => {
                dims::expect("the batch of the mask", &batch, b)?;
                if n.known() != Some(1) {
                    dims::expect("the keys of the mask", &keys, n)?;
                }
            }
            [b, q, n] => {
                dims::expect("the batch of the mask", &batch, b)?;
                dims::expect("the queries of the mask", &length, q)?;
                dims::expect("the keys of the mask", &keys, n)?;
                rows = length;
            }
            _ => {
                let message = format!("a mask of rank {}", given.len());
                return Err(Error::unsupported(message));
            }
        }
        Ok(output(DType::F32, Some(vec![batch, Dim::Known(1), rows, keys])))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        Self::mask_axes(inputs).unwrap_or_default()
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let mask = required(inputs, 0)?;
        let given = mask.as_slice::<i32>()?;
        let &[batch, _, rows, keys] = shape.dims() else {
            return Err(Error::invalid("the output's rank is not 4"));
        };
        let mut out = ctx.alloc(dtype, shape)?;
        let all = out.as_mut_slice::<f32>()?;
        let value = |seen: bool| if seen { 0. } else { self.hidden };
        if mask.shape().rank() == 1 {
            for (i, row) in all.chunks_exact_mut(keys.max(1)).enumerate() {
                let place = |i: usize| given.get(i).map(|&n| usize::try_from(n).unwrap_or(0));
                let end = place(i).unwrap_or(0);
                let start = place(batch + i).unwrap_or(0);
                for (key, out) in row.iter_mut().enumerate() {
                    *out = value(key >= start && key < end);
                }
            }
        } else if given.len() == batch * rows * keys && mask.shape().last() == Some(&keys) {
            for (out, &m) in all.iter_mut().zip(given) {
                *out = value(m > 0);
            }
        } else {
            all.fill(0.);
        }
        Ok(vec![out])
    }
}
