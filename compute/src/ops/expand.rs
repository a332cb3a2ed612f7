//! Broadcasting to a given shape.

mod cpu;
mod device;

use crate::args::{arity, output, rank, required};
use crate::device::Launches;
use crate::dims;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};

pub(crate) use cpu::to;

/// `Expand`: inputs x and the shape (i64, rank 1); the two broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expand;

impl Op for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Expand", inputs, 2, 2)?;
        let (x, target) = (required("Expand", inputs, 0)?, required("Expand", inputs, 1)?);
        rank("Expand", "the shape", target, 1)?;
        let target = target.target_shape("Expand")?;
        let shape = match (x.sym_shape(), target) {
            (Some(x), Some(target)) => {
                // An entry that is not tracked may be 1 as well as anything else.
                let mut out = dims::broadcast("Expand", x, &target)?;
                let new = out.len() - target.len();
                for (out, target) in out[new..].iter_mut().zip(&target) {
                    if *target == Dim::Unknown && !matches!(out, Dim::Known(n) if *n != 1) {
                        *out = Dim::Unknown;
                    }
                }
                Some(out)
            }
            _ => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
