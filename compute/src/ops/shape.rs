//! A tensor's dimensions as a tensor.

use crate::args::{concrete_one, output, required};
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::{self, RangeInclusive};

/// `Shape`: any input, i64 rank-1 output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// First axis, negative from the back, clamped.
    pub start: i64,
    /// Axis after the last, negative from the back, clamped; the rank when absent.
    pub end: Option<i64>,
}

impl Shape {
    fn range(&self, rank: usize) -> ops::Range<usize> {
        let signed = i64::try_from(rank).unwrap_or(i64::MAX);
        let clamp = |axis: i64| {
            let axis = if axis < 0 { axis.saturating_add(signed) } else { axis };
            usize::try_from(axis).unwrap_or(0).min(rank)
        };
        let (start, end) = (clamp(self.start), self.end.map_or(rank, clamp));
        start.min(end)..end
    }
}

impl Op for Shape {
    fn name(&self) -> &'static str {
        "Shape"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let contents = x.sym_shape().map(|dims| dims[self.range(dims.len())].to_vec());
        let length = contents.as_ref().map_or(Dim::Unknown, |dims| Dim::Known(dims.len()));
        let out = output(DType::I64, Some(vec![length]));
        Ok(out.into_iter().map(|o| o.with_contents(contents.clone())).collect())
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut out = ctx.alloc(dtype, shape)?;
        let dims = &x.shape()[self.range(x.shape().rank())];
        for (to, &dim) in out.as_mut_slice::<i64>()?.iter_mut().zip(dims) {
            // Only a dimension beside a zero can pass i64.
            *to = i64::try_from(dim).unwrap_or(i64::MAX);
        }
        Ok(vec![out])
    }
}
