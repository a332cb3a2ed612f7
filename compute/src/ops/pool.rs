//! Max, average and sum pooling over windows.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

pub(crate) use device::Windows;

use crate::args::{arity, float, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::window::Pads;
use crate::window::{Axis, Spec, specs};
use lgp_memory::{DType, Tensor, TensorView};

/// What becomes of a window's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest; padding never wins.
    Max,
    /// The mean.
    Average {
        /// Divides by the window's size even where it hangs over into the padding.
        count_include_pad: bool,
    },
    /// The sum: what Lp pooling takes roots of.
    Sum,
}

/// `MaxPool` (first output), `AveragePool`: `[n, c, spatial…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Maximum or mean.
    pub kind: PoolKind,
    /// Window size, one a spatial axis.
    pub kernel: Vec<usize>,
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// Padding around the input.
    pub pads: Pads,
    /// One a spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Rounds the output size up instead of down.
    pub ceil_mode: bool,
}

impl Pool {
    fn specs(&self) -> Result<Vec<Spec>> {
        let op = self.name();
        specs(op, &self.kernel, &self.strides, &self.dilations, &self.pads, self.ceil_mode)
    }

    /// The window of each spatial axis for an actual shape.
    pub(crate) fn axes(&self, x: &[usize]) -> Result<Vec<Axis>> {
        let op = self.name();
        let one = |(spec, &n): (&Spec, &usize)| {
            let axis = spec.axis(op, n)?;
            let reach = (axis.kernel - 1) * axis.dilation + 1;
            if axis.begin >= reach || axis.end >= reach {
                // Some window would see nothing but padding.
                let message = format!(
                    "padding {} and {} is not smaller than the window of {reach}",
                    axis.begin, axis.end
                );
                return Err(Error::invalid(op, message));
            }
            Ok(axis)
        };
        self.specs()?.iter().zip(&x[2..]).map(one).collect()
    }
}

impl Op for Pool {
    fn name(&self) -> &'static str {
        match self.kind {
            PoolKind::Max => "MaxPool",
            PoolKind::Average { .. } => "AveragePool",
            PoolKind::Sum => "LpPool",
        }
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let op = self.name();
        arity(op, inputs, 1, 1)?;
        let x = required(op, inputs, 0)?;
        if self.kind == PoolKind::Max {
            if x.ty.dtype == DType::Bool {
                return Err(Error::invalid(op, "it has no meaning for bool"));
            }
        } else {
            float(op, x.ty.dtype)?;
        }
        let specs = self.specs()?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) if dims.len() != specs.len() + 2 || specs.is_empty() => {
                let (rank, kernel) = (dims.len(), &self.kernel);
                let message = format!("kernel {kernel:?} does not fit an input of rank {rank}");
                return Err(Error::invalid(op, message));
            }
            Some(dims) => {
                let mut out = dims[..2].to_vec();
                for (spec, dim) in specs.iter().zip(&dims[2..]) {
                    out.push(spec.output(op, dim)?);
                }
                Some(out)
            }
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        cpu::run(self, ctx, inputs)
    }
}
