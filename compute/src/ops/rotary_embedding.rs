//! Rotary position embedding.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, output, rank, required, same_dtype, single};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `RotaryEmbedding`: inputs x, cosines, sines, position ids (optional, i64 `[batch, length]`).
///
/// x is `[batch, heads, length, size]`, or `[batch, length, heads · size]`. A single position id,
/// of rank 1, is that of the first token of each sequence. Cosines and sines are
/// `[positions, rotated / 2]` with position ids, otherwise `[batch, length, rotated / 2]`. Pairs of
/// elements are rotated by the angle of their position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotaryEmbedding {
    /// Pairs are neighbours, rather than elements of the first and the second half.
    pub interleaved: bool,
    /// Number of heads of an x of rank 3. Where neither this nor `rotated` is given, a head has two
    /// elements for each angle.
    pub heads: Option<usize>,
    /// Number of elements of each head that are rotated; 0 means all.
    pub rotated: usize,
}

impl RotaryEmbedding {
    /// Batch, length, and half the number of rotated elements.
    fn sizes(&self, x: &[Dim], angles: Option<&Dim>) -> Result<[Dim; 3]> {
        let (batch, length, size) = match x {
            [batch, _, length, size] => (batch, length, size.clone()),
            [batch, length, hidden] if self.heads.is_none() && self.rotated == 0 => {
                let size = match angles.map(Dim::known) {
                    Some(Some(0)) => return Err(Error::invalid("there are no angles")),
                    Some(Some(half)) => Dim::Known(half.saturating_mul(2)),
                    _ => Dim::Unknown,
                };
                dims::quotient(std::slice::from_ref(hidden), std::slice::from_ref(&size))?;
                (batch, length, size)
            }
            [batch, length, hidden] => {
                let Some(heads) = self.heads.filter(|&n| n > 0) else {
                    let message = "x has rank 3, but the number of heads is missing";
                    return Err(Error::invalid(message));
                };
                let size = dims::quotient(std::slice::from_ref(hidden), &[Dim::Known(heads)])?;
                (batch, length, size)
            }
            _ => {
                let message = format!("x has rank {}, expected 3 or 4", x.len());
                return Err(Error::invalid(message));
            }
        };
        let half = match (self.rotated, &size) {
            (0, Dim::Known(n)) if n % 2 == 0 => Dim::Known(n / 2),
            (0, Dim::Symbol(_) | Dim::Unknown) => Dim::Unknown,
            (n, size) if n > 0 && n % 2 == 0 && size.known().is_none_or(|size| n <= size) => {
                Dim::Known(n / 2)
            }
            (n, size) => {
                let message = format!("{n} of {size} elements turn, expected an even part");
                return Err(Error::invalid(message));
            }
        };
        Ok([batch.clone(), length.clone(), half])
    }
}

impl Op for RotaryEmbedding {
    fn name(&self) -> &'static str {
        "RotaryEmbedding"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let angles = required(inputs, 1)?.sym_shape().and_then(<[_]>::last);
        let sizes = x.sym_shape().map(|dims| self.sizes(dims, angles)).transpose()?;
        let ids = optional(inputs, 3);
        if let Some(ids) = ids {
            same_dtype("position_ids", DType::I64, ids.ty.dtype)?;
            if ids.sym_shape().is_some_and(|dims| dims.len() == 1) {
                single("position_ids", ids)?;
            } else {
                rank("position_ids", ids, 2)?;
            }
        }
        for (i, what) in [(1, "the cosines"), (2, "the sines")] {
            let cache = required(inputs, i)?;
            same_dtype(what, x.ty.dtype, cache.ty.dtype)?;
            rank(what, cache, if ids.is_some() { 2 } else { 3 })?;
            let (Some([batch, length, half]), Some(dims)) = (&sizes, cache.sym_shape()) else {
                continue;
            };
            if let [.., last] = dims {
                dims::expect(&format!("the last axis of {what}"), half, last)?;
            }
            if let [b, l, _] = dims {
                dims::expect(&format!("the batch of {what}"), batch, b)?;
                dims::expect(&format!("the length of {what}"), length, l)?;
            }
        }
        let (cos, sin) = (required(inputs, 1)?, required(inputs, 2)?);
        if let (Some(cos), Some(sin)) = (cos.sym_shape(), sin.sym_shape()) {
            for (c, s) in cos.iter().zip(sin) {
                dims::expect("a dimension of the sines", c, s)?;
            }
        }
        if let (Some([batch, length, _]), Some(ids)) = (&sizes, ids)
            && let Some([b, l]) = ids.sym_shape()
        {
            dims::expect("the batch of position_ids", batch, b)?;
            dims::expect("the length of position_ids", length, l)?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = |i: usize| optional(inputs, i).and_then(|x| x.rank());
        let Some(x @ (3 | 4)) = rank(0) else { return Axes::new() };
        let heads = if x == 4 { Axes::new().each([(0, 1)], [(0, 1)]) } else { Axes::new() };
        // The inputs whose first two axes are the batch and the length.
        let beside: &[usize] = match (optional(inputs, 3), rank(3)) {
            (None, _) => &[1, 2],
            (Some(_), Some(2)) => &[3],
            // The positions follow from the first one, which all sequences share.
            (Some(_), Some(1)) => return heads.each([(0, 0)], [(0, 0)]),
            _ => return heads,
        };
        let with = |at: usize, axis: usize| {
            let mut own = vec![(0, at)];
            own.extend(beside.iter().map(|&i| (i, axis)));
            own
        };
        heads.each(with(0, 0), [(0, 0)]).each(with(x - 2, 1), [(0, x - 2)])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        // Each element is the sum of two products.
        outputs.first().map_or(0, crate::cost::elements).saturating_mul(2)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
