//! Evenly spaced numbers.

mod cpu;

use crate::args::{output, required, same_dtype, single};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Range`: scalars start, limit (excluded), delta of one dtype.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range;

impl Op for Range {
    fn name(&self) -> &'static str {
        "Range"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let start = required(inputs, 0)?;
        let (limit, delta) = (required(inputs, 1)?, required(inputs, 2)?);
        for (what, x) in [("start", start), ("limit", limit), ("delta", delta)] {
            same_dtype(what, start.ty.dtype, x.ty.dtype)?;
            single(what, x)?;
        }
        let length = match (&start.constant, &limit.constant, &delta.constant) {
            (Some(start), Some(limit), Some(delta))
                if !matches!(start.dtype(), DType::F16 | DType::BF16) =>
            {
                Dim::Known(cpu::length(start, limit, delta)?)
            }
            _ => from_zero(start, limit, delta).unwrap_or(Dim::Unknown),
        };
        Ok(output(start.ty.dtype, Some(vec![length])))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The length of 0, 1, 2 … up to a tracked dimension, which is that dimension.
fn from_zero(start: &ValueInfo, limit: &ValueInfo, delta: &ValueInfo) -> Option<Dim> {
    if !matches!(start.ty.dtype, DType::I32 | DType::I64) {
        return None;
    }
    let counts = start.contents()? == [Dim::Known(0)] && delta.contents()? == [Dim::Known(1)];
    if counts { limit.contents()?.pop() } else { None }
}

fn too_long() -> Error {
    Error::invalid("the delta is 0, NaN or so small that the length overflows")
}
