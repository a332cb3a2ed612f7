//! A tensor's element count as a tensor.

use crate::args::{output, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Size`: any input, i64 scalar output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Size;

impl Op for Size {
    fn name(&self) -> &'static str {
        "Size"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let n = x.sym_shape().map(dims::product).transpose()?;
        let contents = n.map(|n| vec![n]);
        let out = output(DType::I64, Some(Vec::new()));
        Ok(out.into_iter().map(|o| o.with_contents(contents.clone())).collect())
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let n = required(inputs, 0)?.len();
        let n = i64::try_from(n).map_err(|_| Error::invalid(format!("{n} passes i64")))?;
        Ok(vec![Tensor::scalar(n)?])
    }
}
