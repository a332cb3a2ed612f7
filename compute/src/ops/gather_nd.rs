//! Picks slices by tuples of indices.

mod device;
#[cfg(test)]
mod tests;

use crate::args::{concrete_one, optional, output, required};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::index::{index_dtype, ints, pick, position, strides};
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
pub(crate) use device::Slices;
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `GatherND`: inputs data and indices (i32 or i64), whose last axis holds a position in the axes
/// of data after the batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatherNd {
    /// Leading axes that data and indices share.
    pub batch_dims: usize,
}

impl Op for GatherNd {
    fn name(&self) -> &'static str {
        "GatherND"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        index_dtype("indices", indices.ty.dtype)?;
        let (Some(data), Some(i)) = (x.sym_shape(), indices.sym_shape()) else {
            return Ok(output(x.ty.dtype, None));
        };
        let b = self.batch_dims;
        let Some((last, outer)) = i.split_last().filter(|_| b < i.len() && b <= data.len()) else {
            let message = format!("ranks are {} and {}, expected over {b}", data.len(), i.len());
            return Err(Error::invalid(message));
        };
        for (x, i) in data.iter().zip(&outer[..b]) {
            dims::expect("a batch axis of the indices", x, i)?;
        }
        let Some(width) = last.known() else { return Ok(output(x.ty.dtype, None)) };
        let rest = data[b..].get(width..).ok_or_else(|| too_wide(width, data.len() - b))?;
        Ok(output(x.ty.dtype, Some([outer, rest].concat())))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let x = optional(inputs, 0).and_then(|x| x.rank());
        let shape = optional(inputs, 1).and_then(|x| x.sym_shape()?.split_last());
        let (Some(x), Some((width, outer))) = (x, shape) else { return Axes::new() };
        let (b, outer) = (self.batch_dims, outer.len());
        let end = width.known().map(|width| b.saturating_add(width));
        let Some(end) = end.filter(|&end| b <= outer && end <= x) else { return Axes::new() };
        let tuples = (0..outer).fold(Axes::new(), |axes, i| {
            axes.each([(1, i), (0, i)].into_iter().take(if i < b { 2 } else { 1 }), [(0, i)])
        });
        let rest = (end..x).fold(tuples, |axes, i| axes.each([(0, i)], [(0, outer + i - end)]));
        // The indices of a wider tuple are for several axes.
        match end - b {
            1 => rest.with(AxisKind::Picked { by: 1 }, [(0, b)], []),
            _ => rest,
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let (from, run) = slice_positions(x.shape(), self.batch_dims, indices)?;
        pick(run * dtype.size(), x.as_bytes(), &from, out.as_bytes_mut()?);
        Ok(vec![out])
    }
}

pub(crate) fn too_wide(width: usize, rank: usize) -> Error {
    Error::invalid(format!("indices are {width} wide, expected at most {rank}"))
}

/// The numbers of the slices that tuples of indices name, and the elements of a slice.
pub(crate) fn slice_positions(
    dims: &[usize],
    batch_dims: usize,
    indices: &TensorView<'_>,
) -> Result<(Vec<usize>, usize)> {
    let (shape, values) = (indices.shape(), ints("indices", indices)?);
    let width = shape.last().copied().unwrap_or(0);
    let named = &dims[..(batch_dims + width).min(dims.len())];
    let run: usize = dims[named.len()..].iter().product();
    let steps = strides(named);
    let tuples: usize = shape[..shape.rank().saturating_sub(1)].iter().product();
    let batches: usize = dims[..batch_dims].iter().product();
    let each = tuples.checked_div(batches).unwrap_or(0);
    let mut out = Vec::with_capacity(tuples);
    for i in 0..tuples {
        let batch = if batch_dims == 0 { 0 } else { i / each * steps[batch_dims - 1] };
        let mut at = batch;
        for (j, &index) in values[i * width..][..width].iter().enumerate() {
            at += position(index, dims[batch_dims + j])? * steps[batch_dims + j];
        }
        out.push(at);
    }
    Ok((out, run))
}
