//! Convolution of bytes on the CPU: products of which each row points at the taps of its window.

use super::depthwise::DepthwiseWeights;
use super::windows::Windows;
use super::{Ends, Finish, QConv, Segments, Weights};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::par::Failure;
use crate::qgemm::{Epilogue, Packed, Product, Rows, ToBytes, ToFloats};
use crate::window::Axis;
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &QConv,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let [_, h, w, c] = x.shape()[..] else { return Err(Error::invalid("rank")) };
    let axes = op.windows(h, w)?;
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    if h == 0 || w == 0 {
        return Err(Error::unsupported("an input without pixels"));
    }
    let unsigned;
    let bytes = if x.dtype() == DType::I8 {
        unsigned = flipped(ctx, x)?;
        unsigned.as_bytes()
    } else {
        x.as_bytes()
    };
    let image = Image { x: bytes, images: x.shape()[0], axes, c };
    match (&op.ends, &*op.weights) {
        (Ends::Bytes { x, .. }, Weights::Depthwise(weights)) => {
            let zero = u8::try_from(x.unsigned_zero()).unwrap_or(0);
            depthwise(op, ctx, &image, zero, weights, out.as_bytes_mut()?)?;
        }
        (Ends::Bytes { x, .. }, Weights::Dense { groups, segments }) => {
            let zero = u8::try_from(x.unsigned_zero()).unwrap_or(0);
            let ready: Vec<(&Packed, &[i32], &ToBytes)> = groups
                .iter()
                .filter_map(|group| match &group.finish {
                    Finish::Bytes { seeds, epilogue } => {
                        Some((&group.packed, seeds.as_slice(), epilogue))
                    }
                    Finish::Floats { .. } => None,
                })
                .collect();
            multiply(op, ctx, &image, (*segments, zero), &ready, out.as_bytes_mut()?)?;
        }
        (Ends::Floats { activation }, Weights::Dense { groups, segments }) => {
            let one = |i| required(inputs, i).map(TensorView::as_bytes);
            let (&[a, b, c, d], &[zero]) = (one(1)?, one(2)?) else {
                return Err(Error::invalid("the scale or the zero point is not one number"));
            };
            let by = f32::from_ne_bytes([a, b, c, d]);
            let made: Vec<(&Packed, Vec<i32>, ToFloats<'_>)> = groups
                .iter()
                .filter_map(|group| match &group.finish {
                    Finish::Floats { scale, bias } => {
                        let scale = scale.iter().map(|w| by * w).collect();
                        let activation = *activation;
                        let epilogue = ToFloats { scale, bias, residual: None, activation };
                        Some((&group.packed, group.packed.seeds(None, zero.into()), epilogue))
                    }
                    Finish::Bytes { .. } => None,
                })
                .collect();
            let ready: Vec<(&Packed, &[i32], &ToFloats<'_>)> = made
                .iter()
                .map(|(packed, seeds, epilogue)| (*packed, seeds.as_slice(), epilogue))
                .collect();
            multiply(op, ctx, &image, (*segments, zero), &ready, out.as_mut_slice::<f32>()?)?;
        }
        (Ends::Floats { .. }, Weights::Depthwise(_)) => {
            return Err(Error::unsupported("channels with a window each, to floats"));
        }
    }
    Ok(vec![out])
}

/// Images and the windows over them.
#[derive(Clone, Copy)]
struct Image<'a> {
    x: &'a [u8],
    images: usize,
    axes: [Axis; 2],
    c: usize,
}

fn depthwise(
    op: &QConv,
    ctx: &Context,
    image: &Image<'_>,
    zero: u8,
    weights: &DepthwiseWeights,
    to: &mut [u8],
) -> Result<()> {
    let border = vec![zero; image.c];
    let window =
        Window { x: image.x, border: &border, axes: image.axes, c: image.c, first_channel: 0 };
    let m = op.geometry.maps;
    let taps = op.geometry.kernel[0] * op.geometry.kernel[1];
    let failure = Failure::default();
    ctx.split(to, m, m.saturating_mul(taps) / 4, |first, part| {
        failure.note(weights.run(ctx.simd(), &window, first, part));
    });
    failure.result()
}

/// The products of all groups, each with where its sums start and what becomes of them.
fn multiply<E: Epilogue>(
    op: &QConv,
    ctx: &Context,
    image: &Image<'_>,
    (segments, zero): (Segments, u8),
    groups: &[(&Packed, &[i32], &E)],
    to: &mut [E::Out],
) -> Result<()> {
    let (m, Image { x, images, axes, c }) = (op.geometry.maps, *image);
    let pixels = to.len() / m;
    if segments == Segments::Taps {
        let border = vec![zero; c / op.geometry.group];
        let n = m / groups.len().max(1);
        for (i, (packed, seeds, epilogue)) in groups.iter().enumerate() {
            let first_channel = i * border.len();
            let window = Window { x, border: &border, axes, c, first_channel };
            let product = Product::new(ctx.simd(), packed, seeds, *epilogue);
            // SAFETY: a window's rows point to whole pixels, or to a border of as many bytes as a
            // group has channels, which is a multiple of four.
            unsafe { product.run(ctx, &window, pixels, (&mut to[i * n..], m))? };
        }
        return Ok(());
    }
    let Some((packed, seeds, epilogue)) = groups.first() else { return Ok(()) };
    let product = Product::new(ctx.simd(), packed, seeds, *epilogue);
    let Some((lines, width, size)) = padded_sizes(images, &axes, c, m) else {
        return Windows { x, zero, axes, c }.multiply(ctx, &product, (to, m));
    };
    let mut copy = ctx.scratch(DType::U8, [size])?;
    padded(ctx, x, (lines / images, width), &axes, c, zero, copy.as_bytes_mut()?);
    let lines = Lines { x: copy.as_bytes(), axes, width, c };
    // SAFETY: a row points at a line of taps in the padded copy, of which there is as much as a
    // multiple of four takes: `Lines` checks that.
    unsafe { product.run(ctx, &lines, pixels, (to, m)) }
}

/// Signed bytes as unsigned ones, 128 higher.
fn flipped(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    let mut out = ctx.scratch(DType::U8, x.shape().clone())?;
    let from = x.as_bytes();
    ctx.split(out.as_bytes_mut()?, 1, 1, |start, part| {
        part.iter_mut().zip(&from[start..]).for_each(|(o, x)| *o = *x ^ 0x80);
    });
    Ok(out)
}

/// What kernels read beyond the last line of taps, to fill up a multiple of four.
const BEYOND: usize = 3;

/// A padded copy has at most so many times the bytes of input and output. Beyond that hardly any of
/// it is read.
const PADDED_TIMES: usize = 16;

/// Lines of all padded images, pixels of a line, and bytes of the copy; `None` where most of it
/// would be for nothing.
pub(super) fn padded_sizes(
    images: usize,
    axes: &[Axis; 2],
    c: usize,
    maps: usize,
) -> Option<(usize, usize, usize)> {
    let size = |axis: &Axis| axis.begin.checked_add(axis.input)?.checked_add(axis.end);
    let lines = size(&axes[0])?.checked_mul(images)?;
    let width = size(&axes[1])?;
    let bytes = width.checked_mul(c)?.checked_mul(lines)?.checked_add(BEYOND)?;
    let area = |of: fn(&Axis) -> usize, each: usize| {
        axes.iter().fold(images.saturating_mul(each), |n, axis| n.saturating_mul(of(axis)))
    };
    let used = area(|axis| axis.input, c).saturating_add(area(|axis| axis.output, maps));
    (bytes <= used.saturating_mul(PADDED_TIMES)).then_some((lines, width, bytes))
}

/// Copies images of some lines and pixels with their borders.
fn padded(
    ctx: &Context,
    x: &[u8],
    (height, width): (usize, usize),
    axes: &[Axis; 2],
    c: usize,
    zero: u8,
    out: &mut [u8],
) {
    let [y, w] = axes;
    let (line, row) = (width * c, w.input * c);
    let (all, beyond) = out.split_at_mut(out.len() - BEYOND);
    beyond.fill(zero);
    ctx.split(all, line, line / 4, |first, part| {
        for (i, out) in part.chunks_exact_mut(line).enumerate() {
            let (image, at) = ((first + i) / height, (first + i) % height);
            let at = at.wrapping_sub(y.begin);
            if at >= y.input {
                out.fill(zero);
                continue;
            }
            let (before, rest) = out.split_at_mut(w.begin * c);
            let (inside, after) = rest.split_at_mut(row);
            before.fill(zero);
            inside.copy_from_slice(&x[(image * y.input + at) * row..][..row]);
            after.fill(zero);
        }
    });
}

/// An output pixel.
pub(super) struct Pixel {
    pub(super) image: usize,
    pub(super) y: usize,
    pub(super) x: usize,
}

impl Pixel {
    pub(super) fn new(index: usize, [y, x]: &[Axis; 2]) -> Self {
        let (image, pixel) = (index / (y.output * x.output), index % (y.output * x.output));
        Self { image, y: pixel / x.output, x: pixel % x.output }
    }

    fn advance(&mut self, [y, x]: &[Axis; 2]) {
        self.x += 1;
        if self.x == x.output {
            (self.x, self.y) = (0, self.y + 1);
            if self.y == y.output {
                (self.y, self.image) = (0, self.image + 1);
            }
        }
    }
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
        for ky in 0..ay.kernel {
            for kx in 0..ax.kernel {
                let mut pixel = Pixel::new(first, &self.axes);
                for at in &mut at[(ky * ax.kernel + kx) * step..][..count] {
                    let y = (pixel.y * ay.stride + ky * ay.dilation).wrapping_sub(ay.begin);
                    let x = (pixel.x * ax.stride + kx * ax.dilation).wrapping_sub(ax.begin);
                    *at = if y < ay.input && x < ax.input {
                        let from = (pixel.image * ay.input + y) * ax.input + x;
                        self.x[from * self.c + self.first_channel..].as_ptr()
                    } else {
                        self.border.as_ptr()
                    };
                    pixel.advance(&self.axes);
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
        let height = ay.begin + ay.input + ay.end;
        let read = (ax.kernel * self.c).next_multiple_of(4);
        for ky in 0..ay.kernel {
            let mut pixel = Pixel::new(first, &self.axes);
            for at in &mut at[ky * step..][..count] {
                let y = pixel.image * height + pixel.y * ay.stride + ky * ay.dilation;
                let line = &self.x[(y * self.width + pixel.x * ax.stride) * self.c..];
                assert!(line.len() >= read, "a line of taps in the padded copy");
                *at = line.as_ptr();
                pixel.advance(&self.axes);
            }
        }
    }
}
