//! Convolution of channels-last bytes with packed 8-bit weights, to bytes or to floats.

mod cpu;
mod depthwise;
mod rows;
#[cfg(test)]
mod tests;
mod windows;

use crate::Axes;
use crate::args::{output, rank, required, same_dtype, single};
use crate::bytes::QuantizedWeight;
use crate::dims;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::ConvGeometry;
use crate::qgemm::{PANEL, Packed, ToBytes};
use crate::quantized::{Quant, centred};
use crate::rewrite::{Absorbed, Following};
use crate::window::{Axis, Spec, specs};
use depthwise::DepthwiseWeights;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

const NAME: &str = "QConvNhwc";

/// A convolution: input x `[n, h, w, c]` of bytes, output `[n, oh, ow, m]`.
///
/// The output of a [`QConv::new`] is bytes: the result of dequantising, `Conv`, a clip and
/// quantising, but with exact sums. A [`QConv::dynamic`] has an f32 output, and reads x, its scale
/// and its zero point as `DynamicQuantizeLinear` gives them.
#[derive(Debug, Clone)]
pub struct QConv {
    geometry: ConvGeometry,
    ends: Ends,
    weights: Arc<Weights>,
}

/// The types of input and output.
#[derive(Debug, Clone)]
enum Ends {
    Bytes { x: Quant, y: DType },
    Floats { activation: Activation },
}

#[derive(Debug)]
enum Weights {
    Dense { groups: Vec<Group>, segments: Segments },
    Depthwise(DepthwiseWeights),
}

/// The weights of a group of channels.
#[derive(Debug)]
struct Group {
    packed: Packed,
    finish: Finish,
}

/// The epilogue of a group's sums.
#[derive(Debug)]
enum Finish {
    Bytes {
        seeds: Vec<i32>,
        epilogue: ToBytes,
    },
    /// Scales of the weight, and the bias, padded to whole panels.
    Floats {
        scale: Vec<f32>,
        bias: Vec<f32>,
    },
}

/// The segments of the inner dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segments {
    /// The channels of one tap: the input is read where it lies.
    Taps,
    /// One line of taps with their channels: the input is copied with its padding, or one window at
    /// a time.
    Lines,
}

/// The parts of a [`QConv`] from bytes to bytes.
#[derive(Debug, Clone, Copy)]
pub struct QConvParts<'a> {
    /// The input's quantisation.
    pub x: Quant,
    /// Weights `[m, c / group, kh, kw]`, i8 or u8.
    pub weight: &'a TensorView<'a>,
    /// Scales of the weight: one, or one for each output channel.
    pub weight_scale: &'a [f32],
    /// The weight's zero points, as many as scales: 0 for i8, 128 for u8.
    pub weight_zero: &'a [i32],
    /// One for each output channel, of scale `x.scale · weight_scale`.
    pub bias: Option<&'a [i32]>,
    /// The output's quantisation.
    pub y: Quant,
    /// Limits of the output's real values.
    pub limits: (f32, f32),
}

impl QConv {
    /// Packs the weights.
    ///
    /// # Errors
    /// Parts that do not fit, or for which there is no kernel.
    pub fn new(geometry: ConvGeometry, parts: QConvParts<'_>) -> Result<Self> {
        Self::packed(geometry, parts).map_err(|error| error.of(NAME))
    }

    fn packed(geometry: ConvGeometry, parts: QConvParts<'_>) -> Result<Self> {
        parts.x.check()?;
        parts.y.check()?;
        let scales = (parts.weight_scale.len(), parts.weight_zero.len());
        check(&geometry, parts.weight, scales, parts.bias.map(<[i32]>::len))?;
        let weight = centred(parts.weight, parts.weight_zero)?;
        let (m, [kh, kw]) = (geometry.maps, geometry.kernel);
        let zero = parts.x.unsigned_zero();
        let depthwise = geometry.group == m && m == geometry.channels && m > 1;
        let weights = if depthwise {
            let at = |c: usize, tap: usize| weight[c * kh * kw + tap];
            let weights = DepthwiseWeights::new(m, kh * kw, at, to_bytes(&parts, 0..m)?);
            Weights::Depthwise(weights.seeded(parts.bias, zero))
        } else {
            dense(&geometry, &weight, |packed, columns| {
                let seeds = packed.seeds(parts.bias.map(|b| &b[columns.clone()]), zero);
                Ok(Finish::Bytes { seeds, epilogue: to_bytes(&parts, columns)? })
            })?
        };
        let ends = Ends::Bytes { x: parts.x, y: parts.y.dtype };
        Ok(Self { geometry, ends, weights: Arc::new(weights) })
    }

    /// Packs the weights of a convolution to floats; the bias has one entry per output channel.
    ///
    /// # Errors
    /// Parts that do not fit, or for which there is no kernel: depthwise convolutions have none.
    pub fn dynamic(
        geometry: ConvGeometry,
        weight: &QuantizedWeight,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        Self::packed_dynamic(geometry, weight, bias).map_err(|error| error.of(NAME))
    }

    fn packed_dynamic(
        geometry: ConvGeometry,
        weight: &QuantizedWeight,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        let m = geometry.maps;
        let scales = (weight.scale.len(), weight.zero.len());
        check(&geometry, &weight.tensor.view(), scales, bias.map(<[f32]>::len))?;
        if geometry.group == m && m == geometry.channels && m > 1 {
            return Err(Error::unsupported("channels with a window each, to floats"));
        }
        let view = weight.tensor.view();
        let centred = centred(&view, &weight.zero)?;
        let weights = dense(&geometry, &centred, |_, columns| {
            let whole = columns.len().div_ceil(PANEL) * PANEL;
            let of = |i: usize| weight.scale[if weight.scale.len() == 1 { 0 } else { i }];
            let mut scale: Vec<f32> = columns.clone().map(of).collect();
            scale.resize(whole, 0.);
            let mut bias = bias.map_or(Vec::new(), |bias| bias[columns].to_vec());
            bias.resize(whole, 0.);
            Ok(Finish::Floats { scale, bias })
        })?;
        let ends = Ends::Floats { activation: Activation::None };
        Ok(Self { geometry, ends, weights: Arc::new(weights) })
    }

    /// The windows of both axes.
    fn windows(&self, h: usize, w: usize) -> Result<[Axis; 2]> {
        let specs = window(&self.geometry)?;
        Ok([specs[0].axis(h)?, specs[1].axis(w)?])
    }
}

/// Fails unless a weight, its scales and zero points and a bias fit a convolution.
fn check(
    geometry: &ConvGeometry,
    weight: &TensorView<'_>,
    (scales, zeros): (usize, usize),
    bias: Option<usize>,
) -> Result<()> {
    let (g, m) = (geometry.group, geometry.maps);
    let [kh, kw] = geometry.kernel;
    window(geometry)?;
    let per_group = geometry.channels.checked_div(g).unwrap_or(0);
    let fits = g > 0
        && geometry.channels.is_multiple_of(g)
        && m % g == 0
        && m > 0
        && per_group > 0
        && weight.shape()[..] == [m, per_group, kh, kw]
        && bias.is_none_or(|bias| bias == m)
        && scales == zeros
        && (scales == m || scales == 1);
    if fits {
        return Ok(());
    }
    Err(Error::invalid(format!("{geometry:?} does not fit the weights")))
}

/// Packs the weights of each group; `finish` makes the epilogue of a range of output channels.
fn dense(
    geometry: &ConvGeometry,
    weight: &[i8],
    finish: impl Fn(&Packed, std::ops::Range<usize>) -> Result<Finish>,
) -> Result<Weights> {
    let (g, m) = (geometry.group, geometry.maps);
    let [kh, kw] = geometry.kernel;
    let per_group = geometry.channels / g;
    let at = |map: usize, c: usize, tap: usize| weight[(map * per_group + c) * kh * kw + tap];
    let segments = if per_group.is_multiple_of(4) { Segments::Taps } else { Segments::Lines };
    if segments == Segments::Lines && (g > 1 || geometry.dilations[1] != 1) {
        return Err(Error::unsupported(format!("{geometry:?}")));
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
                let map = |map| (0..size).map(move |i| at(map, i % per_group, i / per_group));
                let weight: Vec<i8> = (0..n).flat_map(map).collect();
                Packed::new(n, kh, kw * per_group, &weight, [size, kw * per_group, 1])?
            }
        };
        let finish = finish(&packed, columns)?;
        groups.push(Group { packed, finish });
    }
    Ok(Weights::Dense { groups, segments })
}

/// The window's attributes along both axes.
fn window(g: &ConvGeometry) -> Result<Vec<Spec>> {
    specs(&g.kernel, &g.strides, &g.dilations, &g.pads, false)
}

/// The epilogue to bytes of some output channels.
fn to_bytes(parts: &QConvParts<'_>, columns: std::ops::Range<usize>) -> Result<ToBytes> {
    let scales = parts.weight_scale;
    let of = |i: usize| if scales.len() == 1 { scales[0] } else { scales[i] };
    let mut scale: Vec<f32> = columns.map(|i| parts.x.scale * of(i) / parts.y.scale).collect();
    scale.resize(scale.len().div_ceil(PANEL) * PANEL, 0.);
    ToBytes::new(scale, parts.y, parts.limits)
}

impl Op for QConv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        match self.ends {
            Ends::Bytes { .. } => 1..=1,
            Ends::Floats { .. } => 3..=3,
        }
    }

    fn held_bytes(&self) -> usize {
        match &*self.weights {
            Weights::Dense { groups, .. } => {
                let finish = |group: &Group| match &group.finish {
                    Finish::Bytes { seeds, .. } => size_of_val(&**seeds),
                    Finish::Floats { scale, bias } => size_of_val(&**scale) + size_of_val(&**bias),
                };
                groups.iter().map(|group| group.packed.bytes() + finish(group)).sum()
            }
            Weights::Depthwise(weights) => weights.bytes(),
        }
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let (from, to) = match self.ends {
            Ends::Bytes { x, y } => (x.dtype, y),
            Ends::Floats { .. } => {
                for (i, what, dtype) in
                    [(1, "the scale", DType::F32), (2, "the zero point", DType::U8)]
                {
                    let one = required(inputs, i)?;
                    same_dtype(what, dtype, one.ty.dtype)?;
                    single(what, one)?;
                }
                (DType::U8, DType::F32)
            }
        };
        same_dtype("the input", from, x.ty.dtype)?;
        rank("the input", x, 4)?;
        let g = &self.geometry;
        let shape = match x.sym_shape() {
            Some([n, h, w, c]) => {
                dims::expect("the number of channels", &Dim::Known(g.channels), c)?;
                let specs = window(g)?;
                let (h, w) = (specs[0].output(h)?, specs[1].output(w)?);
                Some(vec![n.clone(), h, w, Dim::Known(g.maps)])
            }
            _ => None,
        };
        Ok(output(to, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        self.geometry.image_axes(inputs, None)
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.geometry.multiply_adds(outputs)
    }

    fn absorbing(&self, _: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let free = matches!(self.ends, Ends::Floats { activation: Activation::None });
        match *next {
            Following::Activation(activation) if free => {
                Some(Absorbed::held(Self { ends: Ends::Floats { activation }, ..self.clone() }))
            }
            _ => None,
        }
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = inputs.first().copied().flatten().and_then(|x| x.ty.concrete_shape());
        let Some([n, h, w, c]) = shape.as_deref() else { return 0 };
        let bytes =
            |sizes: [usize; 4]| sizes.into_iter().fold(1, |n: usize, size| n.saturating_mul(size));
        let flips = matches!(self.ends, Ends::Bytes { x, .. } if x.flip() != 0);
        let flipped = if flips { bytes([*n, *h, *w, *c]) } else { 0 };
        let Ok(axes) = self.windows(*h, *w) else { return 0 };
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
