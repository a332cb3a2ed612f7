//! Tensors into sequences and back.

use super::{data_only, expect_sequence, items, sequence_of, tensor};
use crate::args::{axis, output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo, launch};
use lgp_memory::{DType, Datum, Layout, Tensor, TensorView};

/// `SplitToSequence`: inputs data and the sizes of the pieces: one for all (the last may be
/// smaller), one each, or none for pieces of size 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitToSequence {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Whether pieces of size 1 keep the axis, where no sizes are given.
    pub keep_dims: bool,
}

impl Op for SplitToSequence {
    data_only!("SplitToSequence", 1..=2);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        Ok(sequence_of(required(inputs, 0)?.ty.dtype))
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let x = tensor(0, required(&inputs, 0)?)?;
        let axis = axis(self.axis, x.shape().rank())?;
        let size = x.shape()[axis];
        let sizes = inputs.get(1).and_then(Option::as_ref);
        let sizes = sizes.map(|s| pieces(tensor(1, s)?, size)).transpose()?;
        let squeeze = sizes.is_none() && !self.keep_dims;
        let sizes = sizes.unwrap_or_else(|| vec![1; size]);
        let whole = Layout::contiguous(x.shape())?;
        let mut parts = Vec::with_capacity(sizes.len());
        let mut start = 0;
        for length in sizes {
            let view = if length == 0 {
                let mut dims = x.shape().to_vec();
                dims[axis] = 0;
                Layout::contiguous(&dims.into())?
            } else {
                whole.sliced(axis, start, 1, length)?
            };
            let part = crate::movement::strided(ctx, &x.view(), &view)?;
            let part = x.string_table().map_or(part.clone(), |table| part.or_table(table));
            let mut dims = part.shape().to_vec();
            if squeeze {
                dims.remove(axis);
            }
            parts.push(Datum::Tensor(part.reshape(dims)?));
            start += length;
        }
        Ok(vec![Datum::Sequence(parts)])
    }
}

/// The sizes of the pieces of an axis.
fn pieces(given: &Tensor, size: usize) -> Result<Vec<usize>> {
    let wrong = || {
        let message = format!("the sizes do not cut {size} into pieces");
        Error::invalid(message)
    };
    if !matches!(given.dtype(), DType::I32 | DType::I64) {
        return Err(wrong());
    }
    let sizes = crate::args::integers(given)?;
    let sizes: Vec<usize> =
        sizes.iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>().map_err(|_| wrong())?;
    if given.shape().rank() > 0 {
        let sum = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        return if sum == Some(size) { Ok(sizes) } else { Err(wrong()) };
    }
    match sizes.as_slice() {
        [0] | [] => Err(wrong()),
        [piece, ..] => {
            let mut all = vec![*piece; size / piece];
            all.extend(Some(size % piece).filter(|&rest| rest > 0));
            Ok(all)
        }
    }
}

/// `ConcatFromSequence`: all tensors of a sequence as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConcatFromSequence {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Whether the axis is a new one.
    pub new_axis: bool,
}

impl Op for ConcatFromSequence {
    data_only!("ConcatFromSequence", 1..=1);

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let sequence = required(inputs, 0)?;
        expect_sequence(0, sequence)?;
        Ok(output(sequence.ty.dtype, None))
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let items = items(inputs.into_iter().next().flatten())?;
        let mut parts: Vec<Tensor> = Vec::with_capacity(items.len());
        for item in &items {
            let part = tensor(0, item)?;
            if self.new_axis {
                let unsqueeze = crate::ops::Unsqueeze { axes: Some(vec![self.axis]) };
                parts.extend(launch(&unsqueeze, ctx, &[Some(part.view())])?);
            } else {
                parts.push(part.clone());
            }
        }
        let views: Vec<_> = parts.iter().map(|p| Some(p.view())).collect();
        let out = launch(&crate::ops::Concat { axis: self.axis }, ctx, &views)?;
        Ok(out.into_iter().map(Datum::Tensor).collect())
    }
}
