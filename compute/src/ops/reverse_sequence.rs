//! Reverses the beginning of each sequence of a batch.

use crate::Axes;
use crate::args::{concrete_one, output, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::index::{index_dtype, ints, pick};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `ReverseSequence`: inputs x (rank 2 or more) and the sequences' lengths (i64, one for each
/// entry of the batch); the elements after a sequence stay in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseSequence {
    /// Time is axis 0 and the batch axis 1, rather than the other way round.
    pub time_first: bool,
}

impl Op for ReverseSequence {
    fn name(&self) -> &'static str {
        "ReverseSequence"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, lengths) = (required(inputs, 0)?, required(inputs, 1)?);
        index_dtype("the lengths", lengths.ty.dtype)?;
        rank("the lengths", lengths, 1)?;
        if let Some(dims) = x.sym_shape() {
            let Some(batch) = dims.get(usize::from(self.time_first)).filter(|_| dims.len() > 1)
            else {
                let message = format!("rank is {}, expected 2 or more", dims.len());
                return Err(Error::invalid(message));
            };
            if let Some([n]) = lengths.sym_shape() {
                dims::expect("the number of lengths", batch, n)?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let batch = usize::from(self.time_first);
        let rest = Axes::each_but(&[0, 1], inputs, outputs.len());
        rest.each([(0, batch), (1, 0)], [(0, batch)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut out = ctx.alloc(dtype, shape.clone())?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let (first, second) = (shape[0], shape[1]);
        let time = if self.time_first { first } else { second };
        let mut lengths = Vec::with_capacity(first.max(second) / time.max(1));
        for n in ints("the lengths", required(inputs, 1)?)? {
            let n = usize::try_from(n).ok().filter(|&n| n <= time);
            lengths.push(n.ok_or_else(|| {
                Error::invalid(format!("a length is outside 0 to {time}, the time axis"))
            })?);
        }
        let from: Vec<usize> = (0..first * second)
            .map(|i| {
                let (a, b) = (i / second, i % second);
                let (t, batch) = if self.time_first { (a, b) } else { (b, a) };
                let n = lengths[batch];
                let t = if t < n { n - 1 - t } else { t };
                if self.time_first { t * second + b } else { a * second + t }
            })
            .collect();
        let inner = x.len() / (first * second);
        pick(inner * dtype.size(), x.as_bytes(), &from, out.as_bytes_mut()?);
        Ok(vec![out])
    }
}
