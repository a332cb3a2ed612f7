//! Resampling to another size.

mod cpu;
mod device;
mod facts;
mod line;
mod taps;
mod targets;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{optional, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::Cast;
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// How an output element is made from the neighbouring input elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ResizeMode {
    /// The nearest element.
    Nearest(NearestRounding),
    /// Linear interpolation along each resized axis.
    Linear,
    /// Cubic interpolation along each resized axis.
    Cubic {
        /// The kernel's coefficient, mostly -0.75 or -0.5.
        a: f32,
    },
}

/// Which neighbour is the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "ONNX's own names")]
pub enum NearestRounding {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    /// Before opset 11: down, but up along axes that become smaller.
    Old,
}

/// How a position in the output maps to one in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "ONNX's own names")]
pub enum CoordinateMode {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfCropAndResize,
}

/// How sizes are read that would change the proportions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AspectRatio {
    /// The proportions change.
    #[default]
    Stretch,
    /// The largest output of the same proportions that is larger than the sizes on no axis.
    NotLarger,
    /// The smallest output of the same proportions that is smaller than the sizes on no axis.
    NotSmaller,
}

/// `Resize` (and `Upsample`: asymmetric): inputs x, roi (for cropping, all starts
/// and then all ends, in 0..1), scales (f32, optional), sizes (i64, optional); exactly one of the
/// last two.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// Interpolation.
    pub mode: ResizeMode,
    /// Mapping of positions.
    pub coordinates: CoordinateMode,
    /// Axes that scales and sizes belong to; all when absent.
    pub axes: Option<Vec<i64>>,
    /// Replaces an absent scales input (`Upsample` before opset 9).
    pub scales: Option<Vec<f32>>,
    /// Widens the kernel along axes that become smaller, so that every element counts.
    pub antialias: bool,
    /// Gives positions outside of x no weight. Otherwise they count as the edge.
    pub exclude_outside: bool,
    /// The value of outputs whose position lies outside of x (cropping only).
    pub extrapolation: f32,
    /// Whether sizes may change the proportions.
    pub aspect: AspectRatio,
}

impl Default for Resize {
    /// Nearest, stretching, with ONNX's defaults.
    fn default() -> Self {
        Self {
            mode: ResizeMode::Nearest(NearestRounding::RoundPreferFloor),
            coordinates: CoordinateMode::HalfPixel,
            axes: None,
            scales: None,
            antialias: false,
            exclude_outside: false,
            extrapolation: 0.,
            aspect: AspectRatio::Stretch,
        }
    }
}

/// Integers are interpolated as f32 and then truncated.
fn is_integer(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}

impl Op for Resize {
    fn name(&self) -> &'static str {
        "Resize"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let dtype = x.ty.dtype;
        let blends = !matches!(self.mode, ResizeMode::Nearest(_));
        if blends && !is_integer(dtype) && !dtype.is_float() {
            return Err(Error::invalid(format!("{dtype} cannot be interpolated")));
        }
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => Some(match self.targets(inputs, dims)? {
                None => vec![Dim::Unknown; dims.len()],
                Some(targets) => {
                    let mut out = dims.to_vec();
                    for (axis, target) in targets {
                        out[axis] = target.output(&dims[axis])?;
                        if dims[axis] == Dim::Known(0) && out[axis] != dims[axis] {
                            let message = format!("axis {axis} has no elements to resize");
                            return Err(Error::invalid(message));
                        }
                    }
                    out
                }
            }),
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let dims = optional(inputs, 0).and_then(|x| x.sym_shape());
        match dims.map(|dims| self.resampled(inputs, dims)) {
            Some(Ok(resampled)) => Axes::each_but(&resampled, inputs, outputs.len()),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        matches!(self.mode, ResizeMode::Nearest(_))
            && self.coordinates != CoordinateMode::TfCropAndResize
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.blended(inputs, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |info: &ValueInfo| info.ty.concrete_shape();
        let from = optional(inputs, 0).and_then(|x| shape(x));
        let to = self.infer(inputs).ok().and_then(|out| shape(out.first()?));
        let (Some(x), Some(from), Some(to)) = (optional(inputs, 0), from, to) else { return 0 };
        // A step's result lives until the next step has its own.
        let bytes = |(_, elements): (usize, usize)| elements.saturating_mul(x.ty.dtype.size());
        let mut sizes: Vec<usize> = self.steps(&from, &to).into_iter().map(bytes).collect();
        sizes.pop();
        let pairs = sizes.windows(2).map(|pair| pair[0].saturating_add(pair[1]));
        pairs.chain(sizes.iter().copied()).max().unwrap_or(0)
    }

    fn widens_halves(&self) -> bool {
        self.coordinates == CoordinateMode::TfCropAndResize
            || !matches!(self.mode, ResizeMode::Nearest(_))
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        inputs.first().copied().flatten().filter(|x| x.rank() == Some(order.len()))?;
        let all = || (0..i64::try_from(order.len()).unwrap_or(0)).collect();
        let axes = self.axes.clone().unwrap_or_else(all);
        let axes = axes.into_iter().map(|axis| moved_axis(order, axis)).collect::<Option<_>>()?;
        Some(Reordered::first(Self { axes: Some(axes), ..self.clone() }, inputs, 1))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        if !matches!(self.mode, ResizeMode::Nearest(_)) && is_integer(x.dtype()) {
            let wide = Cast { to: DType::F32 }.run(ctx, &[Some(x.clone())])?;
            let mut views = inputs.to_vec();
            views[0] = wide.first().map(Tensor::view);
            let out = cpu::run(self, ctx, &views)?;
            return Cast { to: x.dtype() }.run(ctx, &[out.first().map(Tensor::view)]);
        }
        cpu::run(self, ctx, inputs)
    }
}
