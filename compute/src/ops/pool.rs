//! Max, average and sum pooling over windows.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

pub(crate) use device::Windows;

use crate::Axes;
use crate::args::{float, not_bool, optional, output, required};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::PoolNhwc;
use crate::ops::QMaxPool;
use crate::ops::pooling::{PoolKind, window, window_axes, window_elements};
use crate::reorder::{CHANNELS_LAST, Reordered};
use crate::window::{Axis, Pads, Spec, specs};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `MaxPool` (its first output), `AveragePool`, and the sums of `LpPool`: `[n, c, spatial…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Maximum, mean or sum.
    pub kind: PoolKind,
    /// Window size, one per spatial axis.
    pub kernel: Vec<usize>,
    /// One per spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// Padding around the input.
    pub pads: Pads,
    /// One per spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Rounds the output size up instead of down.
    pub ceil_mode: bool,
}

impl Pool {
    fn specs(&self) -> Result<Vec<Spec>> {
        specs(&self.kernel, &self.strides, &self.dilations, &self.pads, self.ceil_mode)
    }

    /// The window of each spatial axis for an actual shape.
    pub(crate) fn windows(&self, x: &[usize]) -> Result<Vec<Axis>> {
        self.specs()?.iter().zip(&x[2..]).map(|(spec, &n)| window(spec, n)).collect()
    }
}

impl Pool {
    /// The same pool of channels-last bytes, for a maximum over two spatial axes.
    fn of_bytes(&self) -> Option<QMaxPool> {
        let pair = |values: &[usize]| match *values {
            [] => Some([1, 1]),
            [a, b] => Some([a, b]),
            _ => None,
        };
        if self.kind != PoolKind::Max || self.kernel.len() != 2 {
            return None;
        }
        Some(QMaxPool {
            kernel: pair(&self.kernel)?,
            strides: pair(&self.strides)?,
            dilations: pair(&self.dilations)?,
            pads: self.pads.clone(),
            ceil_mode: self.ceil_mode,
        })
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

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        if self.kind == PoolKind::Max {
            not_bool(x.ty.dtype)?;
        } else {
            float(x.ty.dtype)?;
        }
        let specs = self.specs()?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) if dims.len() != specs.len() + 2 || specs.is_empty() => {
                let (rank, kernel) = (dims.len(), &self.kernel);
                let message = format!("kernel {kernel:?} does not fit an input of rank {rank}");
                return Err(Error::invalid(message));
            }
            Some(dims) => {
                let mut out = dims[..2].to_vec();
                for (spec, dim) in specs.iter().zip(&dims[2..]) {
                    out.push(spec.output(dim)?);
                }
                Some(out)
            }
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Ok(specs) = self.specs() else { return Axes::new() };
        window_axes(&specs, &self.pads, optional(inputs, 0).copied(), [1, 2])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        window_elements(&self.kernel, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let x = inputs.first().copied().flatten()?;
        let is_image = *order == CHANNELS_LAST && x.rank() == Some(4) && outputs.len() == 1;
        if is_image && matches!(x.ty.dtype, DType::I8 | DType::U8) {
            return Some(Reordered::first(self.of_bytes()?, inputs, 1));
        }
        let pair = |values: &[usize]| match *values {
            [] => Some([1, 1]),
            [a, b] => Some([a, b]),
            _ => None,
        };
        let op = PoolNhwc {
            kind: self.kind,
            kernel: self.kernel.as_slice().try_into().ok()?,
            strides: pair(&self.strides)?,
            pads: self.pads.clone(),
            dilations: pair(&self.dilations)?,
            ceil_mode: self.ceil_mode,
        };
        (is_image && x.ty.dtype == DType::F32).then(|| Reordered::first(op, inputs, 1))
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        let input = inputs.first().copied().flatten()?;
        let fits = input.quant == Some(y.quant) && input.info.rank() == Some(4) && y.is_plain();
        let op = self.of_bytes().filter(|_| fits)?;
        Some(OnBytes::new(op, &[0]).channels_last())
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
