//! The triangle above or below a diagonal.

mod device;

use crate::Axes;
use crate::args::{concrete_one, optional, output, required, single};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::index::{index_dtype, ints};
use crate::movement::zero_byte;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Trilu`: inputs x (rank 2 or more, any dtype) and k (i64, one element, optional), the diagonal
/// that bounds the triangle. All other elements become zero, or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trilu {
    /// The triangle above the diagonal rather than below; both include the diagonal.
    pub upper: bool,
}

impl Op for Trilu {
    fn name(&self) -> &'static str {
        "Trilu"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        if let Some(k) = optional(inputs, 1) {
            index_dtype("k", k.ty.dtype)?;
            single("k", k)?;
        }
        if let Some(dims) = x.sym_shape().filter(|dims| dims.len() < 2) {
            let message = format!("rank is {}, expected 2 or more", dims.len());
            return Err(Error::invalid(message));
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        Axes::each_but(&[rank.saturating_sub(2), rank.saturating_sub(1)], inputs, outputs.len())
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let k = optional(inputs, 1).map(|k| ints("k", k)).transpose()?;
        let k = k.and_then(|k| k.first().copied()).unwrap_or(0);
        let [.., rows, columns] = shape.dims()[..] else { return Ok(Vec::new()) };
        let mut out = x.to_tensor()?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let (size, zero) = (dtype.size(), zero_byte(x));
        for (i, row) in out.as_bytes_mut()?.chunks_exact_mut(columns * size).enumerate() {
            // The first column on or right of the diagonal; the lower triangle has one more.
            let row_index = i64::try_from(i % rows).unwrap_or(i64::MAX);
            let bound = row_index.saturating_add(k).saturating_add(i64::from(!self.upper));
            let bound = usize::try_from(bound.max(0)).unwrap_or(columns).min(columns);
            if self.upper {
                row[..bound * size].fill(zero);
            } else {
                row[bound * size..].fill(zero);
            }
        }
        Ok(vec![out])
    }
}
