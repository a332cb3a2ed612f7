//! Writes an update into a cache.

use crate::Axes;
use crate::args::{axis, concrete_one, optional, output, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::index::{index_dtype, ints};
use crate::movement::around;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `TensorScatter`: inputs cache, update (the cache's shape, but for a shorter sequence axis) and
/// the position of the write in each entry of the batch (i64, optional, the start if absent).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorScatter {
    /// The sequence axis, negative from the back; not the first one.
    pub axis: i64,
    /// Continues at the start of the cache after its end.
    pub circular: bool,
}

impl Op for TensorScatter {
    fn name(&self) -> &'static str {
        "TensorScatter"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (cache, update) = (required(inputs, 0)?, required(inputs, 1)?);
        same_dtype("the update", cache.ty.dtype, update.ty.dtype)?;
        if let Some(starts) = optional(inputs, 2) {
            index_dtype("the positions", starts.ty.dtype)?;
            rank("the positions", starts, 1)?;
            if let (Some([n]), Some([batch, ..])) = (starts.sym_shape(), cache.sym_shape()) {
                dims::expect("the number of positions", batch, n)?;
            }
        }
        if let (Some(cache), Some(new)) = (cache.sym_shape(), update.sym_shape()) {
            rank("the update", update, cache.len())?;
            let along = axis(self.axis, cache.len())?;
            if along == 0 {
                return Err(Error::invalid("axis 0 is the batch, expected a later one"));
            }
            for (i, (cache, new)) in cache.iter().zip(new).enumerate() {
                if i != along {
                    dims::expect("an axis of the update", cache, new)?;
                }
            }
        }
        Ok(output(cache.ty.dtype, cache.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let Ok(along) = axis(self.axis, rank) else { return Axes::new() };
        (0..rank).filter(|axis| *axis != along).fold(Axes::new(), |axes, axis| {
            let positions = optional(inputs, 2).filter(|_| axis == 0).map(|_| (2, 0));
            axes.each([(0, axis), (1, axis)].into_iter().chain(positions), [(0, axis)])
        })
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        0
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (cache, update) = (required(inputs, 0)?, required(inputs, 1)?);
        let along = axis(self.axis, shape.rank())?;
        let starts = optional(inputs, 2).map(|x| ints("the positions", x)).transpose()?;
        let mut out = cache.to_tensor()?;
        if update.is_empty() {
            return Ok(vec![out]);
        }
        let (outer, size, inner) = around(&shape, along);
        let new = update.shape()[along];
        let (batch, run) = (shape[0], inner * dtype.size());
        let bytes = out.as_bytes_mut()?;
        for (i, from) in update.as_bytes().chunks_exact(new * run).enumerate() {
            let start = starts.as_ref().map_or(0, |starts| starts[i / (outer / batch)]);
            let fits = usize::try_from(start).ok().filter(|start| {
                start.checked_add(new).is_some_and(|end| self.circular || end <= size)
            });
            let start = fits.filter(|_| new <= size).ok_or_else(|| {
                let message = format!("{new} entries at {start} do not fit into {size}");
                Error::invalid(message)
            })?;
            for (j, from) in from.chunks_exact(run).enumerate() {
                let at = i * size + (start % size + j) % size;
                bytes[at * run..][..run].copy_from_slice(from);
            }
        }
        Ok(vec![out])
    }
}
