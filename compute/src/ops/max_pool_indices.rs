//! Max pooling that also outputs the position of each maximum.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::{Pool, PoolKind};
use lgp_memory::{DType, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// `MaxPool` with both outputs: the maxima, and their i64 indices in the flattened input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxPoolIndices {
    /// The windows; its kind is [`PoolKind::Max`].
    pub pool: Pool,
    /// Counts a plane's elements with the first spatial axis fastest, not the last.
    pub column_major: bool,
}

impl Op for MaxPoolIndices {
    fn name(&self) -> &'static str {
        "MaxPool"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        self.pool.arity()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        if self.pool.kind != PoolKind::Max {
            return Err(Error::invalid("only a maximum has an index"));
        }
        let mut out = self.pool.infer(inputs)?;
        let indices =
            out.first().map(|values| TensorType { dtype: DType::I64, ..values.ty.clone() });
        out.extend(indices.map(ValueInfo::of));
        Ok(out)
    }

    // No axes: an index counts all elements of the input, so that a part would have other indices.

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let windows = outputs.first().map_or(0, crate::cost::elements);
        self.pool.kernel.iter().fold(windows, |work, &size| work.saturating_mul(size as u64))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
