//! Back from quantised values.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{axis, optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims::surely_equal;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::quantized::{moved_scales, range, same_shape, small_float};
use crate::reorder::{Reordered, elementwise};
use crate::rewrite::Decoder;
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `DequantizeLinear`: inputs x, scale, zero point (optional). An element becomes
/// `(x − zero point) · scale`.
///
/// The scale has one element, one for each index along `axis`, or x's shape with blocks along it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DequantizeLinear {
    /// Axis of the scales, negative from the back.
    pub axis: i64,
    /// Elements along the axis that share a scale, where scales have x's rank; 0 takes the number
    /// from the shapes.
    pub block: usize,
    /// The output's dtype; the scale's when absent.
    pub to: Option<DType>,
}

impl Default for DequantizeLinear {
    fn default() -> Self {
        Self { axis: 1, block: 0, to: None }
    }
}

impl Op for DequantizeLinear {
    fn name(&self) -> &'static str {
        "DequantizeLinear"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, scale) = (required(inputs, 0)?, required(inputs, 1)?);
        let dtype = x.ty.dtype;
        if range(dtype).is_none() && !small_float(dtype) && dtype != DType::I32 {
            return Err(Error::unsupported(format!("dtype {}", x.ty.dtype)));
        }
        if let Some(zero) = optional(inputs, 2) {
            same_dtype("the zero point", x.ty.dtype, zero.ty.dtype)?;
            same_shape(scale, zero)?;
        }
        let to = self.to.unwrap_or(scale.ty.dtype);
        for dtype in [to, scale.ty.dtype] {
            if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
                return Err(Error::unsupported(format!("a scale or output of dtype {dtype}")));
            }
        }
        Ok(output(to, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        scaled_axes(inputs, self.axis, self.block).unwrap_or_default()
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let (Some(x), Some(scale)) = (optional(inputs, 0), optional(inputs, 1)) else { return 0 };
        let wide = match x.ty.dtype {
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => x.bytes_in(DType::I8),
            small if small_float(small) => x.bytes_in(DType::F32),
            _ => 0,
        };
        let narrow = self.to.unwrap_or(scale.ty.dtype) != DType::F32;
        wide.saturating_add(if narrow { x.bytes_in(DType::F32) } else { 0 })
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        if let Some(same) = elementwise(&self.axes(inputs, outputs), order, inputs, outputs) {
            return Some(same);
        }
        let axis = moved_scales(order, self.axis, self.block, inputs)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, 1))
    }

    fn decodes(&self) -> Option<Decoder> {
        Some(Decoder::Scales { axis: self.axis, block: self.block, to: self.to })
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The axes of x, its scales and its zero points; `None` where a rank is unknown.
fn scaled_axes(inputs: &[Option<&ValueInfo>], at: i64, block: usize) -> Option<Axes> {
    let (x, scale) = (optional(inputs, 0)?, optional(inputs, 1)?);
    let (rank, scales) = (x.rank()?, scale.rank()?);
    let zero = optional(inputs, 2).map_or(Some(scales), |zero| zero.rank())?;
    // A zero point of another rank than the scale is a single number, as the scale is.
    let parameters = if zero == scales { 1..3 } else { 1..2 };
    let at = axis(at, rank).ok();
    let is_row = scales == 1 && (rank != 1 || block == 0);
    Some((0..rank).fold(Axes::new(), |axes, axis| {
        let is_at = Some(axis) == at;
        let own = if is_row { is_at.then_some(0) } else { (scales == rank).then_some(axis) };
        let in_blocks = !is_row && own.is_some() && is_at;
        if in_blocks && !surely_equal(x.dim(axis), scale.dim(axis)) {
            return axes;
        }
        let there = |i: &usize| optional(inputs, *i).is_some();
        let own = own.into_iter().flat_map(|own| parameters.clone().map(move |i| (i, own)));
        axes.each([(0, axis)].into_iter().chain(own.filter(|(i, _)| there(i))), [(0, axis)])
    }))
}
