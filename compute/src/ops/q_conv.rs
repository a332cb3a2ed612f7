//! Convolution of channels-last bytes with packed 8-bit weights, quantised again.

mod cpu;
mod depthwise;
#[cfg(test)]
mod tests;
mod windows;

use crate::args::{arity, output, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::ConvGeometry;
use crate::qgemm::{PANEL, Packed, ToBytes};
use crate::quantized::{Quant, centred};
use crate::window::{Axis, Spec, specs};
use depthwise::DepthwiseWeights;
use lgp_memory::{Dim, Tensor, TensorView};
use std::sync::Arc;

const NAME: &str = "QConvNhwc";

/// A convolution: input x `[n, h, w, c]`, output `[n, oh, ow, m]`, both bytes.
///
/// The result is what back to floats, `Conv`, a clip and quantisation would give, but that the
/// sums are exact.
#[derive(Debug, Clone)]
pub struct QConv {
    geometry: ConvGeometry,
    x: Quant,
    y: Quant,
    weights: Arc<Weights>,
}

#[derive(Debug)]
enum Weights {
    /// For each group: the packed weights, where the sums start, and what becomes of them.
    Dense {
        groups: Vec<(Packed, Vec<i32>, ToBytes)>,
        segments: Segments,
    },
    Depthwise(DepthwiseWeights),
}

/// What the inner dimension's segments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segments {
    /// The channels of one tap: the input is read where it lies.
    Taps,
    /// One line of taps with their channels: the input is copied with its padding, or window by
    /// window.
    Lines,
}

/// What a [`QConv`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct QConvParts<'a> {
    /// The input's quantisation.
    pub x: Quant,
    /// Weights `[m, c / group, kh, kw]`, i8 or u8.
    pub weight: &'a TensorView<'a>,
    /// Scales of the weight: one, or one for each output channel.
    pub weight_scale: &'a [f32],
    /// The weight's zero points, as many as scales; i8's must be 0 and u8's 128.
    pub weight_zero: &'a [i32],
    /// One for each output channel, of scale `x.scale · weight_scale`.
    pub bias: Option<&'a [i32]>,
    /// The output's quantisation.
    pub y: Quant,
    /// Limits of the numbers that the output stands for.
    pub limits: (f32, f32),
}

impl QConv {
    /// Packs the weights.
    ///
    /// # Errors
    /// Parts that do not fit, or for which there is no kernel.
    pub fn new(geometry: ConvGeometry, parts: QConvParts<'_>) -> Result<Self> {
        let (g, m) = (geometry.group, geometry.maps);
        let [kh, kw] = geometry.kernel;
        window(&geometry)?;
        parts.x.check(NAME)?;
        parts.y.check(NAME)?;
        let per_group = geometry.channels.checked_div(g).unwrap_or(0);
        let fits = g > 0
            && geometry.channels.is_multiple_of(g)
            && m % g == 0
            && m > 0
            && per_group > 0
            && parts.weight.shape()[..] == [m, per_group, kh, kw]
            && parts.bias.is_none_or(|b| b.len() == m)
            && parts.weight_scale.len() == parts.weight_zero.len()
            && (parts.weight_scale.len() == m || parts.weight_scale.len() == 1);
        if !fits {
            return Err(Error::invalid(NAME, format!("{geometry:?} does not fit the weights")));
        }
        let weight = centred(NAME, parts.weight, parts.weight_zero)?;
        let at = |map: usize, c: usize, tap: usize| weight[(map * per_group + c) * kh * kw + tap];
        let zero = parts.x.unsigned_zero();
        let weights = if g == m && g == geometry.channels && g > 1 {
            let epilogue = to_bytes(&parts, 0..m)?;
            let weights = DepthwiseWeights::new(m, kh * kw, |c, tap| at(c, 0, tap), epilogue);
            Weights::Depthwise(weights.seeded(parts.bias, zero))
        } else {
            let segments = if per_group % 4 == 0 { Segments::Taps } else { Segments::Lines };
            if segments == Segments::Lines && (g > 1 || geometry.dilations[1] != 1) {
                return Err(Error::unsupported(NAME, format!("{geometry:?}")));
            }
            let mut groups = Vec::with_capacity(g);
            for group in 0..g {
                let columns = group * (m / g)..(group + 1) * (m / g);
                let (n, size) = (columns.len(), per_group * kh * kw);
                let packed = match segments {
                    Segments::Taps => {
                        let weight = &weight[columns.start * size..];
                        Packed::new(n, kh * kw, per_group, weight, [size, 1, kh * kw])?
                    }
                    Segments::Lines => {
                        let map =
                            |map| (0..size).map(move |i| at(map, i % per_group, i / per_group));
                        let weight: Vec<i8> = (0..n).flat_map(map).collect();
                        Packed::new(n, kh, kw * per_group, &weight, [size, kw * per_group, 1])?
                    }
                };
                let seeds = packed.seeds(parts.bias.map(|b| &b[columns.clone()]), zero);
                groups.push((packed, seeds, to_bytes(&parts, columns)?));
            }
            Weights::Dense { groups, segments }
        };
        Ok(Self { geometry, x: parts.x, y: parts.y, weights: Arc::new(weights) })
    }

    /// The windows of both axes.
    fn axes(&self, h: usize, w: usize) -> Result<[Axis; 2]> {
        let specs = window(&self.geometry)?;
        Ok([specs[0].axis(NAME, h)?, specs[1].axis(NAME, w)?])
    }
}

/// Both axes of a window.
fn window(g: &ConvGeometry) -> Result<Vec<Spec>> {
    specs(NAME, &g.kernel, &g.strides, &g.dilations, &g.pads, false)
}

/// The epilogue of some output channels.
fn to_bytes(parts: &QConvParts<'_>, columns: std::ops::Range<usize>) -> Result<ToBytes> {
    let scales = parts.weight_scale;
    let of = |i: usize| if scales.len() == 1 { scales[0] } else { scales[i] };
    let mut scale: Vec<f32> = columns.map(|i| parts.x.scale * of(i) / parts.y.scale).collect();
    scale.resize(scale.len().div_ceil(PANEL) * PANEL, 0.);
    ToBytes::new(NAME, scale, parts.y, parts.limits)
}

impl Op for QConv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn held_bytes(&self) -> usize {
        match &*self.weights {
            Weights::Dense { groups, .. } => {
                groups.iter().map(|(packed, seeds, _)| packed.bytes() + size_of_val(&**seeds)).sum()
            }
            Weights::Depthwise(weights) => weights.bytes(),
        }
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity(NAME, inputs, 1, 1)?;
        let x = required(NAME, inputs, 0)?;
        same_dtype(NAME, "the input", self.x.dtype, x.ty.dtype)?;
        rank(NAME, "the input", x, 4)?;
        let g = &self.geometry;
        let shape = match x.sym_shape() {
            Some([n, h, w, c]) => {
                dims::expect(NAME, "the number of channels", &Dim::Known(g.channels), c)?;
                let specs = window(g)?;
                let (h, w) = (specs[0].output(NAME, h)?, specs[1].output(NAME, w)?);
                Some(vec![n.clone(), h, w, Dim::Known(g.maps)])
            }
            _ => None,
        };
        Ok(output(self.y.dtype, shape))
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = inputs.first().copied().flatten().and_then(|x| x.ty.concrete_shape());
        let Some([n, h, w, c]) = shape.as_deref() else { return 0 };
        let bytes =
            |sizes: [usize; 4]| sizes.into_iter().fold(1, |n: usize, size| n.saturating_mul(size));
        let flipped = if self.x.flip() == 0 { 0 } else { bytes([*n, *h, *w, *c]) };
        let Ok(axes) = self.axes(*h, *w) else { return 0 };
        if !matches!(&*self.weights, Weights::Dense { segments: Segments::Lines, .. }) {
            return flipped;
        }
        let copied = match cpu::padded_sizes(*n, &axes, *c, self.geometry.maps) {
            Some((_, _, bytes)) => bytes,
            None => {
                let pixels = bytes([*n, axes[0].output, axes[1].output, 1]);
                let (_, window, at_once) = windows::sizes(&axes, *c, pixels);
                window.saturating_mul(at_once)
            }
        };
        flipped.saturating_add(copied)
    }
}
