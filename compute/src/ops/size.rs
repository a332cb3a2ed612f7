//! A tensor's element count as a tensor.

use crate::args::{arity, output, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};

/// `Size`: any input, i64 scalar output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Size;

impl Op for Size {
    fn name(&self) -> &'static str {
        "Size"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Size", inputs, 1, 1)?;
        let x = required("Size", inputs, 0)?;
        let n = x.sym_shape().map(|dims| dims::product("Size", dims)).transpose()?;
        let contents = n.map(|n| vec![n]);
        let out = output(DType::I64, Some(Vec::new()));
        Ok(out.into_iter().map(|o| o.with_contents(contents.clone())).collect())
    }

    fn run(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        arity("Size", inputs, 1, 1)?;
        let n = required("Size", inputs, 0)?.len();
        let n = i64::try_from(n).map_err(|_| Error::invalid("Size", format!("{n} passes i64")))?;
        Ok(vec![Tensor::scalar(n)?])
    }
}
