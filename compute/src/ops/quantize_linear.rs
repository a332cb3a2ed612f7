//! Quantisation with given scales.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{axis, optional, output, required, same_dtype};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::quantized::{moved_scales, range, same_shape, small_float};
use crate::reorder::{Reordered, elementwise};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

pub(crate) use cpu::{Params, bytes_f32};

/// `QuantizeLinear`: inputs x, scale, zero point (optional). An element becomes
/// `round(x / scale) + zero point`, half to even, saturated; for
/// a float dtype `x / scale`, as a cast rounds it.
///
/// The scale has one element, one for each index along `axis`, or x's shape with blocks along it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantizeLinear {
    /// Axis of the scales, negative from the back.
    pub axis: i64,
    /// Elements along the axis that share a scale, where scales have x's rank; 0 takes the number
    /// from the shapes.
    pub block: usize,
    /// The output's dtype where there is no zero point; u8 when absent.
    pub to: Option<DType>,
    /// Whether a quotient beyond the range of a float of eight bits becomes its largest number.
    pub saturate: bool,
}

impl Default for QuantizeLinear {
    fn default() -> Self {
        Self { axis: 1, block: 0, to: None, saturate: true }
    }
}

impl Op for QuantizeLinear {
    fn name(&self) -> &'static str {
        "QuantizeLinear"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, scale) = (required(inputs, 0)?, required(inputs, 1)?);
        for (what, info) in [("input", x), ("scale", scale)] {
            let float = matches!(info.ty.dtype, DType::F32 | DType::F16 | DType::BF16);
            if !float && (what != "input" || info.ty.dtype != DType::I32) {
                let message = format!("{what} has dtype {}, expected a float", info.ty.dtype);
                return Err(Error::invalid(message));
            }
        }
        let to = match optional(inputs, 2) {
            None => self.to.unwrap_or(DType::U8),
            Some(zero) => {
                same_shape(scale, zero)?;
                if let Some(to) = self.to {
                    same_dtype("the zero point", to, zero.ty.dtype)?;
                }
                zero.ty.dtype
            }
        };
        if range(to).is_none() && !small_float(to) {
            return Err(Error::unsupported(format!("output dtype {to}")));
        }
        Ok(output(to, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let (Some(x), Ok(out)) = (optional(inputs, 0), self.infer(inputs)) else { return 0 };
        let floats = x.bytes_in(DType::F32);
        let copy = if x.ty.dtype == DType::F32 { 0 } else { floats };
        let quotients = if out.iter().any(|y| small_float(y.ty.dtype)) { floats } else { 0 };
        copy.saturating_add(quotients)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = |i: usize| optional(inputs, i).and_then(|x| x.rank());
        let (Some(x), Some(scale)) = (rank(0), rank(1)) else { return Axes::new() };
        let along = axis(self.axis, x).ok();
        let in_blocks = scale == x && (x > 1 || self.block != 0);
        let each = (0..x).filter(|axis| !in_blocks || Some(*axis) != along);
        each.fold(Axes::new(), |axes, axis| {
            let own = [0, 1, 2].into_iter().filter_map(|i| match rank(i)? {
                n if n == x && (i == 0 || x > 1 || in_blocks) => Some((i, axis)),
                1 if Some(axis) == along => Some((i, 0)),
                _ => None,
            });
            axes.each(own, [(0, axis)])
        })
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

    fn quantizes(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
