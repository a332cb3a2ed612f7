//! Channels-last pooling on the CPU: whole pixels are combined, so that loops run along channels.

use super::{GlobalPoolNhwc, PoolNhwc};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op};
use crate::ops::{GlobalPoolKind, PoolKind};
use crate::simd::dispatch;
use lgp_memory::{Tensor, TensorView};

pub(super) fn pool(
    op: &PoolNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(op.name(), inputs, 0)?;
    let [ay, ax] = op.axes(x.shape()[1], x.shape()[2])?;
    let c = x.shape()[3];
    let x = x.as_slice::<f32>()?;
    let mut out = ctx.alloc(dtype, shape)?;
    let taps = ay.kernel.saturating_mul(ax.kernel);
    let row = ax.output * c;
    ctx.split(out.as_mut_slice::<f32>()?, row, row.saturating_mul(taps), |first, out| {
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                for (i, out) in out.chunks_exact_mut(row).enumerate() {
                    let (n, oy) = ((first + i) / ay.output, (first + i) % ay.output);
                    let (ty, plane) = (ay.taps(oy), &x[n * ay.input * ax.input * c..]);
                    for (ox, out) in out.chunks_exact_mut(c).enumerate() {
                        let tx = ax.taps(ox);
                        let pixel =
                            |ky, kx| &plane[(ay.at(oy, ky) * ax.input + ax.at(ox, kx)) * c..][..c];
                        let seen = ty.len() * tx.len();
                        let mut pixels =
                            ty.clone().flat_map(|ky| tx.clone().map(move |kx| (ky, kx)));
                        let Some((ky, kx)) = pixels.next() else { continue };
                        out.copy_from_slice(pixel(ky, kx));
                        if op.kind == PoolKind::Max {
                            for (ky, kx) in pixels {
                                most(out, pixel(ky, kx));
                            }
                        } else {
                            for (ky, kx) in pixels {
                                add(out, pixel(ky, kx));
                            }
                            scale(out, 1. / divisor(op.kind, &ay, &ax, (oy, ox), seen));
                        }
                    }
                }
            },
        );
    });
    Ok(vec![out])
}

/// What a mean divides by.
#[allow(clippy::cast_precision_loss, reason = "windows are small")]
fn divisor(
    kind: PoolKind,
    ay: &crate::window::Axis,
    ax: &crate::window::Axis,
    (oy, ox): (usize, usize),
    seen: usize,
) -> f32 {
    // In ceil mode a window may hang over the padding, too; what lies there does not count.
    let within = |a: &crate::window::Axis, o: usize| {
        let room = (a.input + a.begin + a.end).saturating_sub(o * a.stride);
        room.div_ceil(a.dilation).min(a.kernel)
    };
    match kind {
        PoolKind::Average { count_include_pad: true } => (within(ay, oy) * within(ax, ox)) as f32,
        PoolKind::Sum => 1.,
        _ => seen as f32,
    }
}

pub(super) fn global(
    op: &GlobalPoolNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(op.name(), inputs, 0)?;
    let (pixels, c) = (x.shape()[1].saturating_mul(x.shape()[2]), x.shape()[3]);
    if pixels == 0 {
        return Err(Error::invalid(op.name(), "the planes are empty, expected a pixel"));
    }
    let x = x.as_slice::<f32>()?;
    let mut out = ctx.alloc(dtype, shape)?;
    #[allow(clippy::cast_precision_loss, reason = "a mean of so many pixels needs no last digit")]
    let inverse = 1. / pixels as f32;
    /// Channels that are summed in one go, a few registers.
    const BLOCK: usize = 64;
    ctx.split(out.as_mut_slice::<f32>()?, 1, pixels, |first, out| {
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
                    out.copy_from_slice(&plane[from..from + width]);
                    for pixel in plane.chunks_exact(c).skip(1) {
                        match op.kind {
                            GlobalPoolKind::Average | GlobalPoolKind::Sum => {
                                add(out, &pixel[from..from + width]);
                            }
                            GlobalPoolKind::Max => most(out, &pixel[from..from + width]),
                        }
                    }
                    if op.kind == GlobalPoolKind::Average {
                        scale(out, inverse);
                    }
                    done += width;
                }
            },
        );
    });
    Ok(vec![out])
}

/// NaN wins, as in the plain operator.
#[inline(always)]
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
fn most(out: &mut [f32], x: &[f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = if x > *out || x != x { x } else { *out };
    }
}

#[inline(always)]
fn add(out: &mut [f32], x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

#[inline(always)]
fn scale(out: &mut [f32], by: f32) {
    for out in out {
        *out *= by;
    }
}
