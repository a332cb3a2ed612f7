//! A diagonal of ones.

use crate::args::{concrete_one, output, rank, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `EyeLike`: one input of rank 2, whose shape the output has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EyeLike {
    /// The output's dtype; the input's when absent.
    pub dtype: Option<DType>,
    /// Number of the diagonal: 0 is the main diagonal, those above are positive.
    pub k: i64,
}

impl Op for EyeLike {
    fn name(&self) -> &'static str {
        "EyeLike"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        rank("the input", x, 2)?;
        let dtype = self.dtype.unwrap_or(x.ty.dtype);
        Ok(output(dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let one = Tensor::scalar(1u8)?;
        let one = crate::ops::Cast { to: dtype }.run(ctx, &[Some(one.view())])?;
        let one = one.first().ok_or_else(|| Error::invalid("there is no one"))?;
        let mut out = Tensor::zeros(dtype, shape.clone())?;
        let (size, columns) = (dtype.size(), shape[1]);
        let bytes = out.as_bytes_mut()?;
        for row in 0..if columns == 0 { 0 } else { shape[0] } {
            let column = i64::try_from(row).ok().and_then(|row| row.checked_add(self.k));
            let column = column.and_then(|c| usize::try_from(c).ok()).filter(|&c| c < columns);
            if let Some(column) = column {
                bytes[(row * columns + column) * size..][..size].copy_from_slice(one.as_bytes());
            }
        }
        Ok(vec![out])
    }
}
