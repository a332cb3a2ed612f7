//! Max, average and sum pooling over windows.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

pub(crate) use device::Windows;

use crate::args::{float, optional, output, required};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::PoolNhwc;
use crate::ops::QMaxPool;
use crate::reorder::{CHANNELS_LAST, Reordered};
use crate::window::Pads;
use crate::window::{Axis, Spec, specs};
use crate::{Axes, AxisKind};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

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
        specs(&self.kernel, &self.strides, &self.dilations, &self.pads, self.ceil_mode)
    }

    /// The window of each spatial axis for an actual shape.
    pub(crate) fn windows(&self, x: &[usize]) -> Result<Vec<Axis>> {
        let one = |(spec, &n): (&Spec, &usize)| {
            let axis = spec.axis(n)?;
            let reach = (axis.kernel - 1) * axis.dilation + 1;
            if axis.begin >= reach || axis.end >= reach {
                // Some window would see nothing but padding.
                let message = format!(
                    "padding {} and {} is not smaller than the window of {reach}",
                    axis.begin, axis.end
                );
                return Err(Error::invalid(message));
            }
            Ok(axis)
        };
        self.specs()?.iter().zip(&x[2..]).map(one).collect()
    }
}

impl Pool {
    /// The pool of channels-last bytes, where it takes the largest of two spatial axes.
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
            if x.ty.dtype == DType::Bool {
                return Err(Error::invalid("it has no meaning for bool"));
            }
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

/// The axes of pooling with these windows along the axes from `first` on: neither images nor their
/// channels, axis `channels`, know anything of each other.
pub(crate) fn window_axes(
    specs: &[Spec],
    pads: &Pads,
    x: Option<&ValueInfo>,
    [channels, first]: [usize; 2],
) -> Axes {
    let axes = Axes::new().each([(0, 0)], [(0, 0)]).each([(0, channels)], [(0, channels)]);
    specs.iter().enumerate().fold(axes, |axes, (i, spec)| {
        let before = match pads {
            Pads::Explicit(pads) => Some(pads.get(i).copied().unwrap_or(0)),
            // The input's size decides.
            Pads::SameUpper | Pads::SameLower => {
                let size = x.and_then(|x| x.dim(first + i)).and_then(Dim::known);
                size.and_then(|n| spec.axis(n).ok()).map(|axis| axis.begin)
            }
        };
        let Some(before) = before else { return axes };
        let extent = (spec.kernel - 1).saturating_mul(spec.dilation).saturating_add(1);
        let kind = AxisKind::Window { stride: spec.stride, before, extent };
        axes.with(kind, [(0, first + i)], [(0, first + i)])
    })
}

/// Elements that the windows behind these outputs have, padding included.
pub(crate) fn window_elements(kernel: &[usize], outputs: &[ValueInfo]) -> u64 {
    let all = outputs.first().map_or(0, crate::cost::elements);
    kernel.iter().fold(all, |n, &taps| n.saturating_mul(taps as u64))
}
