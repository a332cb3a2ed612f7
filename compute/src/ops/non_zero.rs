//! The positions of the elements that are not zero.

use crate::args::required;
use crate::error::Result;
use crate::index::strides;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// `NonZero`: one input; the output is i64 `[rank, n]`, a column for each element that is not
/// zero, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NonZero;

impl Op for NonZero {
    fn name(&self) -> &'static str {
        "NonZero"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let rank = x.sym_shape().map_or(Dim::Unknown, |dims| Dim::Known(dims.len()));
        let shape = Some(SymShape(vec![rank, Dim::Unknown]));
        Ok(vec![ValueInfo::of(TensorType { dtype: DType::I64, shape })])
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        let bools = crate::ops::Cast { to: DType::Bool }.run(ctx, &[Some(x.clone())])?;
        let mut found = Vec::new();
        for bools in &bools {
            let set = bools.as_slice::<bool>()?.iter().enumerate().filter(|(_, set)| **set);
            found.extend(set.map(|(i, _)| i));
        }
        let rank = x.shape().rank();
        let mut out = ctx.alloc(DType::I64, [rank, found.len()])?;
        if !found.is_empty() {
            let rows = out.as_mut_slice::<i64>()?.chunks_exact_mut(found.len());
            for ((row, step), &dim) in rows.zip(strides(x.shape())).zip(x.shape().iter()) {
                for (to, i) in row.iter_mut().zip(&found) {
                    *to = i64::try_from(i / step % dim).unwrap_or(i64::MAX);
                }
            }
        }
        Ok(vec![out])
    }
}
