//! Convolution of bytes on the CPU: products of which each row points at the taps of its window.

use super::{NAME, QConv, Segments, Weights};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::qgemm::{Level, Product, Rows};
use crate::window::Axis;
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &QConv,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(NAME, inputs, 0)?;
    let [_, h, w, c] = x.shape()[..] else { return Err(Error::invalid(NAME, "rank")) };
    let axes = op.axes(h, w)?;
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    if h == 0 || w == 0 {
        return Err(Error::unsupported(NAME, "an input without pixels"));
    }
    let unsigned;
    let bytes = if dtype_is_signed(x.dtype()) {
        unsigned = flipped(ctx, x)?;
        unsigned.as_bytes()
    } else {
        x.as_bytes()
    };
    let zero = u8::try_from(op.x.unsigned_zero()).unwrap_or(0);
    let m = op.geometry.maps;
    let level = Level::of(ctx.simd());
    match &*op.weights {
        Weights::Depthwise(weights) => {
            let border = vec![zero; c];
            let window = Window { x: bytes, border: &border, axes, c, first_channel: 0 };
            let taps = op.geometry.kernel[0] * op.geometry.kernel[1];
            ctx.split(out.as_bytes_mut()?, m, m * taps, |first, part| {
                weights.run(level, ctx.simd(), &window, first, part);
            });
        }
        Weights::Dense { groups, segments: Segments::Taps } => {
            let border = vec![zero; c / op.geometry.group];
            let n = m / groups.len();
            let cost = groups.first().map_or(1, |g| g.0.panel() * 4) * n;
            for (i, (packed, seeds, epilogue)) in groups.iter().enumerate() {
                let first_channel = i * border.len();
                let window = Window { x: bytes, border: &border, axes, c, first_channel };
                let product = Product { level, weights: packed, seeds, epilogue };
                ctx.split(out.as_bytes_mut()?, m, cost, |first, part| {
                    // SAFETY: a window's rows point to whole pixels, or to a border of as many
                    // bytes as a group has channels, which is a multiple of four.
                    unsafe { product.run(&window, first, &mut part[i * n..], m) }
                });
            }
        }
        Weights::Dense { groups, segments: Segments::Lines } => {
            let Some((packed, seeds, epilogue)) = groups.first() else { return Ok(vec![out]) };
            let (padded, lines) = padded(ctx, bytes, x.shape()[0], &axes, c, zero)?;
            let lines = Lines { x: padded.as_bytes(), axes, width: lines, c };
            let product = Product { level, weights: packed, seeds, epilogue };
            ctx.split(out.as_bytes_mut()?, m, packed.panel() * 4 * m, |first, part| {
                // SAFETY: a row points into the padded copy, at a line of taps that lies inside
                // it; what is read beyond, to fill up a multiple of four, is at most the three
                // bytes that the copy has more.
                unsafe { product.run(&lines, first, part, m) }
            });
        }
    }
    Ok(vec![out])
}

fn dtype_is_signed(dtype: DType) -> bool {
    dtype == DType::I8
}

/// Signed bytes as unsigned ones, 128 higher.
pub(crate) fn flipped(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    let mut out = ctx.alloc(DType::U8, x.shape().clone())?;
    let from = x.as_bytes();
    ctx.split(out.as_bytes_mut()?, 1, 1, |start, part| {
        part.iter_mut().zip(&from[start..]).for_each(|(o, x)| *o = *x ^ 0x80);
    });
    Ok(out)
}

/// A copy of the images with their borders, and how many pixels a line has. Three bytes follow.
fn padded(
    ctx: &Context,
    x: &[u8],
    images: usize,
    axes: &[Axis; 2],
    c: usize,
    zero: u8,
) -> Result<(Tensor, usize)> {
    let [y, w] = axes;
    let too_large = || Error::unsupported(NAME, "an input that is too large with its padding");
    let height = y.begin.checked_add(y.input).and_then(|n| n.checked_add(y.end));
    let width = w.begin.checked_add(w.input).and_then(|n| n.checked_add(w.end));
    let (height, width) = (height.ok_or_else(too_large)?, width.ok_or_else(too_large)?);
    let line = width.checked_mul(c).ok_or_else(too_large)?;
    let bytes = line.checked_mul(height).and_then(|n| n.checked_mul(images));
    let bytes = bytes.and_then(|n| n.checked_add(3)).ok_or_else(too_large)?;
    let mut out = ctx.alloc(DType::U8, [bytes])?;
    let all = out.as_bytes_mut()?;
    if y.begin + y.end + w.begin + w.end > 0 {
        all.fill(zero);
    }
    let from = w.begin * c;
    for image in 0..images {
        for row in 0..y.input {
            let to = (image * height + y.begin + row) * line + from;
            let at = (image * y.input + row) * w.input * c;
            all[to..to + w.input * c].copy_from_slice(&x[at..at + w.input * c]);
        }
    }
    Ok((out, width))
}

/// Rows of a product that are the windows of a channels-last image, read where it lies.
pub(super) struct Window<'a> {
    pub(super) x: &'a [u8],
    /// A pixel of the padding.
    pub(super) border: &'a [u8],
    pub(super) axes: [Axis; 2],
    pub(super) c: usize,
    pub(super) first_channel: usize,
}

impl Rows for Window<'_> {
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]) {
        let [ay, ax] = &self.axes;
        if ay.is_pointwise() && ax.is_pointwise() {
            let x = &self.x[first * self.c + self.first_channel..];
            for (i, at) in at[..count].iter_mut().enumerate() {
                *at = x[i * self.c..].as_ptr();
            }
            return;
        }
        let outputs = ay.output * ax.output;
        for ky in 0..ay.kernel {
            for kx in 0..ax.kernel {
                let at = &mut at[(ky * ax.kernel + kx) * step..][..count];
                let (image, pixel) = (first / outputs, first % outputs);
                let (mut image, mut oy, mut ox) = (image, pixel / ax.output, pixel % ax.output);
                for at in at {
                    let y = (oy * ay.stride + ky * ay.dilation).wrapping_sub(ay.begin);
                    let x = (ox * ax.stride + kx * ax.dilation).wrapping_sub(ax.begin);
                    *at = if y < ay.input && x < ax.input {
                        let pixel = (image * ay.input + y) * ax.input + x;
                        self.x[pixel * self.c + self.first_channel..].as_ptr()
                    } else {
                        self.border.as_ptr()
                    };
                    ox += 1;
                    if ox == ax.output {
                        (ox, oy) = (0, oy + 1);
                        if oy == ay.output {
                            (oy, image) = (0, image + 1);
                        }
                    }
                }
            }
        }
    }
}

/// Rows of a product that are the windows of a padded copy, line by line.
struct Lines<'a> {
    x: &'a [u8],
    axes: [Axis; 2],
    /// Pixels of a line, with the padding.
    width: usize,
    c: usize,
}

impl Rows for Lines<'_> {
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]) {
        let [ay, ax] = &self.axes;
        let outputs = ay.output * ax.output;
        let height = ay.begin + ay.input + ay.end;
        for ky in 0..ay.kernel {
            for (i, at) in at[ky * step..][..count].iter_mut().enumerate() {
                let (image, pixel) = ((first + i) / outputs, (first + i) % outputs);
                let (oy, ox) = (pixel / ax.output, pixel % ax.output);
                let y = image * height + oy * ay.stride + ky * ay.dilation;
                let pixel = y * self.width + ox * ax.stride;
                *at = self.x[pixel * self.c..][..ax.kernel * self.c].as_ptr();
            }
        }
    }
}
