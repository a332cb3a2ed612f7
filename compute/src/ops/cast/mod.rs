//! Conversion between dtypes.

mod cpu;

use crate::args::{arity, output, required};
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::DType;
use lgp_memory::{Tensor, TensorView};

/// `Cast`: converts every element. Floats to integers truncate and saturate, NaN becomes 0;
/// integers wrap; anything but zero is `true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cast {
    /// The output's dtype.
    pub to: DType,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        "Cast"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Cast", inputs, 1, 1)?;
        let x = required("Cast", inputs, 0)?;
        let dims = x.dims.clone().filter(|_| matches!(self.to, DType::I32 | DType::I64));
        let out = output(self.to, x.sym_shape().map(<[_]>::to_vec));
        Ok(out.into_iter().map(|o| o.with_contents(dims.clone())).collect())
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
