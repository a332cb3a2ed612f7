//! Picks slices by index.

mod cpu;
mod device;

use crate::args::{arity, axis, output_moved, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};

/// `Gather`: inputs data and indices (i32 or i64, any rank, negative from the back).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gather {
    /// Axis of data that is indexed, negative from the back.
    pub axis: i64,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Gather", inputs, 2, 2)?;
        let (x, indices) = (required("Gather", inputs, 0)?, required("Gather", inputs, 1)?);
        if !matches!(indices.ty.dtype, DType::I32 | DType::I64) {
            let message = format!("indices have dtype {}, expected i64", indices.ty.dtype);
            return Err(Error::invalid("Gather", message));
        }
        let axis = x.sym_shape().map(|x| axis("Gather", self.axis, x.len())).transpose()?;
        let shape = match (x.sym_shape(), indices.sym_shape(), axis) {
            (Some(x), Some(indices), Some(axis)) => {
                Some([&x[..axis], indices, &x[axis + 1..]].concat())
            }
            _ => None,
        };
        output_moved(self, inputs, 0..1, shape)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
