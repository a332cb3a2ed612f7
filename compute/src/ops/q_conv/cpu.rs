//! Convolution of bytes on the CPU: products whose rows point at the taps of their windows.

use super::depthwise::DepthwiseWeights;
use super::rows::{Lines, Window};
use super::windows::Windows;
use super::{Ends, Finish, QConv, Segments, Weights};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::par::Failure;
use crate::qgemm::{Epilogue, Packed, Product, ToBytes, ToFloats};
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

/// The products of all groups, each with the seeds of its sums and its epilogue.
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
    // SAFETY: a row points at a line of taps in the padded copy. `Lines` checks that the copy goes
    // on for the line's bytes, rounded up to a multiple of four.
    unsafe { product.run(ctx, &lines, pixels, (to, m)) }
}

/// Signed bytes plus 128, as unsigned bytes.
fn flipped(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    let mut out = ctx.scratch(DType::U8, x.shape().clone())?;
    let from = x.as_bytes();
    ctx.split(out.as_bytes_mut()?, 1, 1, |start, part| {
        part.iter_mut().zip(&from[start..]).for_each(|(o, x)| *o = *x ^ 0x80);
    });
    Ok(out)
}

/// Bytes that kernels read beyond the last line of taps: they read multiples of four.
const BEYOND: usize = 3;

/// The most times that a padded copy may be larger than input and output together. Windows read
/// hardly any of a larger copy.
const PADDED_TIMES: usize = 16;

/// Lines of all padded images, pixels of a line, and bytes of the copy; `None` where windows would
/// read hardly any of it.
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

/// Copies images with their padding, to `height` lines of `width` pixels each.
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
