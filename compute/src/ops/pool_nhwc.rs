//! Pooling of channels-last f32 images: over windows, and over whole planes.

mod cpu;
#[cfg(test)]
mod tests;

use super::pooling::{GlobalPoolKind, PoolKind, plane_axes, window, window_axes, window_elements};
use crate::Axes;
use crate::args::{optional, output, rank, required};
use crate::cost::elements;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::window::{Axis, Pads, Spec, specs};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// Max, average or sum pooling `[n, h, w, c]` to `[n, oh, ow, c]`: f32, maxima also bf16.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolNhwc {
    /// Maximum, mean or sum.
    pub kind: PoolKind,
    /// Window size.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub strides: [usize; 2],
    /// Padding around the input.
    pub pads: Pads,
    /// Distances between taps.
    pub dilations: [usize; 2],
    /// Rounds the output size up instead of down.
    pub ceil_mode: bool,
}

impl PoolNhwc {
    fn specs(&self) -> Result<Vec<Spec>> {
        specs(&self.kernel, &self.strides, &self.dilations, &self.pads, self.ceil_mode)
    }

    fn windows(&self, h: usize, w: usize) -> Result<[Axis; 2]> {
        let specs = self.specs()?;
        Ok([window(&specs[0], h)?, window(&specs[1], w)?])
    }
}

impl Op for PoolNhwc {
    fn name(&self) -> &'static str {
        match self.kind {
            PoolKind::Max => "MaxPoolNhwc",
            PoolKind::Average { .. } => "AveragePoolNhwc",
            PoolKind::Sum => "LpPoolNhwc",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = image(inputs, self.kind == PoolKind::Max)?;
        let specs = self.specs()?;
        let shape = match x.sym_shape() {
            Some([n, h, w, c]) => {
                Some(vec![n.clone(), specs[0].output(h)?, specs[1].output(w)?, c.clone()])
            }
            _ => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Ok(specs) = self.specs() else { return Axes::new() };
        window_axes(&specs, &self.pads, optional(inputs, 0).copied(), [3, 1])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        window_elements(&self.kernel, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::pool(self, ctx, inputs)
    }
}

/// Pooling over whole planes, `[n, h, w, c]` of f32 or bf16 to `[n, 1, 1, c]` of f32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalPoolNhwc {
    /// Mean, maximum or sum.
    pub kind: GlobalPoolKind,
}

impl Op for GlobalPoolNhwc {
    fn name(&self) -> &'static str {
        match self.kind {
            GlobalPoolKind::Average => "GlobalAveragePoolNhwc",
            GlobalPoolKind::Max => "GlobalMaxPoolNhwc",
            GlobalPoolKind::Sum => "GlobalLpPoolNhwc",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let shape = match image(inputs, true)?.sym_shape() {
            Some([n, _, _, c]) => Some(vec![n.clone(), Dim::Known(1), Dim::Known(1), c.clone()]),
            _ => None,
        };
        Ok(output(DType::F32, shape))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        plane_axes()
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| elements(x))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::global(self, ctx, inputs)
    }
}

/// The only input: a tensor of rank 4, of f32, or also bf16 where `bf16` allows it.
fn image<'a>(inputs: &'a [Option<&'a ValueInfo>], bf16: bool) -> Result<&'a ValueInfo> {
    let x = required(inputs, 0)?;
    if x.ty.dtype != DType::F32 && !(bf16 && x.ty.dtype == DType::BF16) {
        return Err(Error::invalid(format!("the dtype is {}, expected f32", x.ty.dtype)));
    }
    rank("the input", x, 4)?;
    Ok(x)
}
