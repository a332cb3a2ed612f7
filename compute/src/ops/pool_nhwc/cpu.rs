//! Channels-last pooling on the CPU: whole pixels are combined, so that loops run along channels.

use super::{GlobalPoolNhwc, PoolNhwc};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::ops::pooling::{GlobalPoolKind, PoolKind};
use crate::simd::dispatch;
use crate::window::Axis;
use half::bf16;
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn pool(
    op: &PoolNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let [ay, ax] = op.windows(x.shape()[1], x.shape()[2])?;
    let c = x.shape()[3];
    let mut out = ctx.alloc(dtype, shape)?;
    let axes = [ay, ax];
    match (op.kind, dtype) {
        (PoolKind::Max, DType::BF16) => {
            let (x, out) = (x.as_slice::<bf16>()?, out.as_mut_slice::<bf16>()?);
            windows(ctx, &axes, c, x, out, bf16::NEG_INFINITY, most_of, |_, _, _| {});
        }
        (PoolKind::Max, _) => {
            let (x, out) = (x.as_slice::<f32>()?, out.as_mut_slice::<f32>()?);
            windows(ctx, &axes, c, x, out, f32::NEG_INFINITY, most_of, |_, _, _| {});
        }
        (PoolKind::Sum, _) => {
            let (x, out) = (x.as_slice::<f32>()?, out.as_mut_slice::<f32>()?);
            windows(ctx, &axes, c, x, out, 0., add, |_, _, _| {});
        }
        (PoolKind::Average { count_include_pad }, _) => {
            let (x, out) = (x.as_slice::<f32>()?, out.as_mut_slice::<f32>()?);
            let mean = |at, seen| 1. / divisor(count_include_pad, &axes, at, seen);
            windows(
                ctx,
                &axes,
                c,
                x,
                out,
                0.,
                add,
                #[inline(always)]
                |out, at, seen| {
                    scale(out, mean(at, seen));
                },
            );
        }
    }
    Ok(vec![out])
}

/// Combines the pixels of each window; a window that sees only padding gives `none`. `finish` takes
/// the output, its place, and the number of pixels that its window saw.
#[expect(clippy::too_many_arguments, reason = "what differs between the kinds of pooling")]
fn windows<T: Copy + Send + Sync>(
    ctx: &Context,
    [ay, ax]: &[Axis; 2],
    c: usize,
    x: &[T],
    out: &mut [T],
    none: T,
    combine: impl Fn(&mut [T], &[T]) + Sync,
    finish: impl Fn(&mut [T], (usize, usize), usize) + Sync,
) {
    let taps = ay.kernel.saturating_mul(ax.kernel);
    let row = ax.output * c;
    ctx.split(out, row, row.saturating_mul(taps), |first, out| {
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                for (i, out) in out.chunks_exact_mut(row).enumerate() {
                    let (n, oy) = ((first + i) / ay.output, (first + i) % ay.output);
                    let plane = &x[n * ay.input * ax.input * c..];
                    for (ox, out) in out.chunks_exact_mut(c).enumerate() {
                        let window = Window { axes: [ay, ax], at: (oy, ox), channels: c };
                        let mut from = 0;
                        while from < c {
                            from += match c - from {
                                16.. => block::<T, 16>(out, from, none, plane, &window, &combine),
                                8.. => block::<T, 8>(out, from, none, plane, &window, &combine),
                                _ => block::<T, 1>(out, from, none, plane, &window, &combine),
                            };
                        }
                        let seen = ay.taps(oy).len() * ax.taps(ox).len();
                        if seen > 0 {
                            finish(out, (oy, ox), seen);
                        }
                    }
                }
            },
        );
    });
}

/// The window of an output in a plane.
struct Window<'a> {
    axes: [&'a Axis; 2],
    /// Row and column of the output.
    at: (usize, usize),
    channels: usize,
}

/// Combines `N` channels, from `from` on, of the pixels that a window sees, in registers, and gives `N`.
#[inline(always)]
fn block<T: Copy, const N: usize>(
    out: &mut [T],
    from: usize,
    none: T,
    plane: &[T],
    window: &Window<'_>,
    combine: &impl Fn(&mut [T], &[T]),
) -> usize {
    let ([ay, ax], (oy, ox)) = (window.axes, window.at);
    let mut all = [none; N];
    for ky in ay.taps(oy) {
        let row = ay.at(oy, ky) * ax.input;
        for kx in ax.taps(ox) {
            let at = (row + ax.at(ox, kx)) * window.channels + from;
            combine(&mut all, &plane[at..][..N]);
        }
    }
    out[from..from + N].copy_from_slice(&all);
    N
}

/// The divisor of a mean.
#[allow(clippy::cast_precision_loss, reason = "windows are small")]
fn divisor(padded: bool, [ay, ax]: &[Axis; 2], (oy, ox): (usize, usize), seen: usize) -> f32 {
    // In ceil mode a window may reach beyond the padding; elements there do not count.
    let within = |a: &Axis, o: usize| {
        let room = (a.input + a.begin + a.end).saturating_sub(o * a.stride);
        room.div_ceil(a.dilation).min(a.kernel)
    };
    if padded { (within(ay, oy) * within(ax, ox)) as f32 } else { seen as f32 }
}

pub(super) fn global(
    op: &GlobalPoolNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let (pixels, c) = (x.shape()[1].saturating_mul(x.shape()[2]), x.shape()[3]);
    if pixels == 0 {
        return Err(Error::invalid("the planes are empty, expected a pixel"));
    }
    let mut out = ctx.alloc(dtype, shape)?;
    let to = out.as_mut_slice::<f32>()?;
    match x.dtype() {
        DType::BF16 => planes(ctx, op.kind, (pixels, c), x.as_slice::<bf16>()?, to),
        _ => planes(ctx, op.kind, (pixels, c), x.as_slice::<f32>()?, to),
    }
    Ok(vec![out])
}

/// Combines the pixels of each plane.
fn planes<T: Wide + Sync>(
    ctx: &Context,
    kind: GlobalPoolKind,
    (pixels, c): (usize, usize),
    x: &[T],
    out: &mut [f32],
) {
    #[allow(clippy::cast_precision_loss, reason = "a mean of so many pixels needs no last digit")]
    let inverse = 1. / pixels as f32;
    /// Channels combined at once: they fit a few registers.
    const BLOCK: usize = 64;
    ctx.split(out, 1, pixels, |first, out| {
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                let mut done = 0;
                while done < out.len() {
                    let (n, from) = ((first + done) / c, (first + done) % c);
                    let width = BLOCK.min(c - from).min(out.len() - done);
                    let out = &mut out[done..done + width];
                    let plane = &x[n * pixels * c..][..pixels * c];
                    let max = kind == GlobalPoolKind::Max;
                    out.fill(if max { f32::NEG_INFINITY } else { 0. });
                    for pixel in plane.chunks_exact(c) {
                        let pixel = &pixel[from..from + width];
                        if max { most(out, pixel, Wide::wide) } else { add(out, pixel) }
                    }
                    if kind == GlobalPoolKind::Average {
                        scale(out, inverse);
                    }
                    done += width;
                }
            },
        );
    });
}

/// A number that is compared and summed as f32.
trait Wide: Copy {
    fn wide(self) -> f32;
}

impl Wide for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

impl Wide for bf16 {
    /// The conversion of `half` checks for NaN, which keeps loops from being vectorised.
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// NaN wins, as in the plain operator.
#[inline(always)]
fn most<T: Wide, X: Wide>(out: &mut [T], x: &[X], keep: impl Fn(X) -> T) {
    for (out, &x) in out.iter_mut().zip(x) {
        let (new, old) = (x.wide(), out.wide());
        *out = if new > old || new.is_nan() { keep(x) } else { *out };
    }
}

/// [`most`] of one type.
#[inline(always)]
fn most_of<T: Wide>(out: &mut [T], x: &[T]) {
    most(
        out,
        x,
        #[inline(always)]
        |x| x,
    );
}

#[inline(always)]
fn add<X: Wide>(out: &mut [f32], x: &[X]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x.wide();
    }
}

#[inline(always)]
fn scale(out: &mut [f32], by: f32) {
    for out in out {
        *out *= by;
    }
}
