//! Cuts a tensor into pieces along an axis.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{axis, ints_or, moved, optional, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Split`: inputs data and the sizes of the pieces (i64, optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Number of pieces; without sizes they are equal, the last possibly smaller.
    pub outputs: usize,
    /// Replaces an absent sizes input (opset < 13).
    pub sizes: Option<Vec<i64>>,
}

impl Split {
    /// The pieces of an axis of a given size.
    fn pieces(&self, dim: &Dim, sizes: Option<&[i64]>) -> Result<Vec<Dim>> {
        let Some(sizes) = sizes else {
            let Dim::Known(n) = *dim else {
                let whole = if self.outputs == 1 { dim.clone() } else { Dim::Unknown };
                return Ok(vec![whole; self.outputs]);
            };
            let piece = n.div_ceil(self.outputs);
            let last = (self.outputs - 1).checked_mul(piece).and_then(|used| n.checked_sub(used));
            let last = last.ok_or_else(|| {
                Error::invalid(format!("cannot cut {n} into {} pieces", self.outputs))
            })?;
            let mut pieces = vec![Dim::Known(piece); self.outputs];
            pieces[self.outputs - 1] = Dim::Known(last);
            return Ok(pieces);
        };
        let wrong = || {
            let message =
                format!("the sizes are {sizes:?}, expected {} that sum to {dim}", self.outputs);
            Error::invalid(message)
        };
        if sizes.len() != self.outputs {
            return Err(wrong());
        }
        let sizes: Vec<usize> = sizes
            .iter()
            .map(|&n| usize::try_from(n).map_err(|_| wrong()))
            .collect::<Result<_>>()?;
        let sum = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or_else(wrong)?;
        if dim.known().is_some_and(|n| n != sum) {
            return Err(wrong());
        }
        Ok(sizes.into_iter().map(Dim::Known).collect())
    }
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "Split"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        // No limit is needed: the graph names each output, which bounds their number.
        if self.outputs == 0 {
            return Err(Error::invalid("there are 0 outputs, expected at least one"));
        }
        let sizes = ints_or("the sizes", optional(inputs, 1), self.sizes.as_deref())?;
        let Some(dims) = x.sym_shape() else {
            return Ok((0..self.outputs).flat_map(|_| output(x.ty.dtype, None)).collect());
        };
        let axis = axis(self.axis, dims.len())?;
        let pieces = match sizes {
            None => self.pieces(&dims[axis], None)?,
            Some(Some(sizes)) => self.pieces(&dims[axis], Some(&sizes))?,
            Some(None) => vec![Dim::Unknown; self.outputs],
        };
        let contents = moved(self, inputs, 0..1);
        let piece = |(i, piece)| {
            let mut shape = dims.to_vec();
            shape[axis] = piece;
            let contents = contents.as_ref().and_then(|c| c.get(i).cloned());
            output(x.ty.dtype, Some(shape))
                .into_iter()
                .map(move |o| o.with_contents(contents.clone()))
        };
        Ok(pieces.into_iter().enumerate().flat_map(piece).collect())
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank());
        match rank.map(|rank| axis(self.axis, rank)) {
            Some(Ok(axis)) => Axes::each_but(&[axis], inputs, outputs.len()),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        inputs.first().copied().flatten().filter(|x| x.rank() == Some(order.len()))?;
        let axis = moved_axis(order, self.axis)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, outputs.len()))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
