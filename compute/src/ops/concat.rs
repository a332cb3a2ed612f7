//! Joins tensors along an axis.

mod cpu;
mod device;

use crate::args::{axis, output_moved, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};

/// `Concat`: one or more inputs that agree in dtype and in every dimension but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concat {
    /// Axis, negative from the back.
    pub axis: i64,
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "Concat"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required("Concat", inputs, 0)?;
        let mut shape = first.sym_shape().map(<[_]>::to_vec);
        let along = shape.as_ref().map(|dims| axis("Concat", self.axis, dims.len())).transpose()?;
        for i in 1..inputs.len() {
            let next = required("Concat", inputs, i)?;
            same_dtype("Concat", &format!("input {i}"), first.ty.dtype, next.ty.dtype)?;
            let (Some(dims), Some(along), Some(out)) = (next.sym_shape(), along, &mut shape) else {
                shape = None;
                continue;
            };
            if dims.len() != out.len() {
                let message = format!("input {i} has rank {}, expected {}", dims.len(), out.len());
                return Err(Error::invalid("Concat", message));
            }
            for (a, (out, dim)) in out.iter_mut().zip(dims).enumerate() {
                *out = if a == along {
                    dims::add("Concat", out, dim)?
                } else {
                    dims::unify("Concat", &format!("axis {a} of input {i}"), out, dim)?
                };
            }
        }
        output_moved(self, inputs, 0..inputs.len(), shape)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
