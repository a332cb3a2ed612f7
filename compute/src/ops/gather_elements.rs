//! Picks single elements along an axis.

mod device;
#[cfg(test)]
mod tests;

use crate::args::{axis, concrete_one, optional, output_moved, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::index::{each, index_dtype, ints, pick, position, strides};
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `GatherElements`: inputs data and indices (i32 or i64, of data's rank, no larger than it on
/// the other axes); the output has the indices' shape.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatherElements {
    /// Axis of data that is indexed, negative from the back.
    pub axis: i64,
}

impl Op for GatherElements {
    fn name(&self) -> &'static str {
        "GatherElements"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        index_dtype("indices", indices.ty.dtype)?;
        if let (Some(x), Some(i)) = (x.sym_shape(), indices.sym_shape()) {
            let axis = axis(self.axis, x.len())?;
            within(x, i, axis)?;
        }
        output_moved(self, inputs, 0..1, indices.sym_shape().map(<[_]>::to_vec))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let dims = |i: usize| optional(inputs, i).and_then(|x| x.sym_shape());
        let (Some(x), Some(indices)) = (dims(0), dims(1)) else { return Axes::new() };
        let Ok(along) = axis(self.axis, x.len()) else { return Axes::new() };
        let picked = Axes::new().with(AxisKind::Picked { by: 1 }, [(0, along)], []);
        let own = picked.each([(1, along)], [(0, along)]);
        // Where data is longer than the indices on an axis, only its first positions are read.
        let alike = |i: usize| i != along && x[i] == indices[i] && x[i] != Dim::Unknown;
        let shared = (0..x.len().min(indices.len())).filter(|&i| alike(i));
        shared.fold(own, |axes, i| axes.each([(0, i), (1, i)], [(0, i)]))
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        let axis = axis(self.axis, x.shape().rank())?;
        let from = element_positions(x.shape(), axis, indices)?;
        let mut out = ctx.alloc(dtype, shape)?;
        pick(dtype.size(), x.as_bytes(), &from, out.as_bytes_mut()?);
        Ok(vec![out])
    }
}

/// Fails unless the indices have the data's rank and are no larger on the axes beside `axis`.
pub(crate) fn within(x: &[Dim], indices: &[Dim], axis: usize) -> Result<()> {
    let wrong = || {
        let (x, i) = (SymShape(x.to_vec()), SymShape(indices.to_vec()));
        Error::invalid(format!("indices of shape {i} do not fit into {x} beside axis {axis}"))
    };
    if x.len() != indices.len() {
        return Err(wrong());
    }
    for (i, (x, index)) in x.iter().zip(indices).enumerate() {
        if let (Some(x), Some(n)) = (x.known(), index.known())
            && i != axis
            && n > x
        {
            return Err(wrong());
        }
    }
    Ok(())
}

/// The position of each index's element along `axis` in a tensor of shape `dims`. The shapes are
/// checked.
pub(crate) fn element_positions(
    dims: &[usize],
    axis: usize,
    indices: &TensorView<'_>,
) -> Result<Vec<usize>> {
    let mut steps = strides(dims);
    let along = std::mem::replace(&mut steps[axis], 0);
    let mut out = Vec::with_capacity(indices.len());
    each(indices.shape(), &steps, |offset| out.push(offset));
    for (out, index) in out.iter_mut().zip(ints("indices", indices)?) {
        *out += position(index, dims[axis])? * along;
    }
    Ok(out)
}
