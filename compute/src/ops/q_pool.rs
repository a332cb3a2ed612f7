//! Pooling of channels-last bytes.

#[cfg(test)]
mod tests;

use super::pooling::{plane_axes, window_axes, window_elements};
use crate::Axes;
use crate::args::{concrete_one, optional, output, rank, required, same_dtype};
use crate::cost::elements;
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::op::{Context, Op, ValueInfo};
use crate::par::Shared;
use crate::qgemm::{LARGE, round};
use crate::quantized::Quant;
use crate::simd::dispatch;
use crate::window::{Axis, Pads, Spec, specs};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `MaxPool` of bytes `[n, h, w, c]`; padding never wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QMaxPool {
    /// Window size.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub strides: [usize; 2],
    /// Distances between taps.
    pub dilations: [usize; 2],
    /// Padding around the input.
    pub pads: Pads,
    /// Rounds the output size up instead of down.
    pub ceil_mode: bool,
}

impl QMaxPool {
    fn specs(&self) -> Result<Vec<Spec>> {
        specs(&self.kernel, &self.strides, &self.dilations, &self.pads, self.ceil_mode)
    }
}

impl Op for QMaxPool {
    fn name(&self) -> &'static str {
        "QMaxPoolNhwc"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = image(inputs)?;
        let specs = self.specs()?;
        let shape = match x.sym_shape() {
            Some([n, h, w, c]) => {
                let h = specs[0].output(h)?;
                Some(vec![n.clone(), h, specs[1].output(w)?, c.clone()])
            }
            _ => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Ok(specs) = self.specs() else { return Axes::new() };
        window_axes(&specs, &self.pads, optional(inputs, 0).copied(), [3, 1])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        window_elements(&self.kernel, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let [_, h, w, c] = x.shape()[..] else { return Ok(Vec::new()) };
        let specs = self.specs()?;
        let axes = [specs[0].axis(h)?, specs[1].axis(w)?];
        let mut out = ctx.alloc(dtype, shape)?;
        let flip = if dtype == DType::I8 { 0x80 } else { 0 };
        let x = x.as_bytes();
        let line = axes[1].output * c;
        let cost = line.saturating_mul(self.kernel[0]).saturating_mul(self.kernel[1]) / 8;
        ctx.split(out.as_bytes_mut()?, line, cost, |first, part| {
            for (i, out) in part.chunks_exact_mut(line).enumerate() {
                let (image, oy) = ((first + i) / axes[0].output, (first + i) % axes[0].output);
                let x = &x[image * h * w * c..][..h * w * c];
                max_line(ctx.simd(), x, &axes, c, oy, flip, out);
            }
        });
        Ok(vec![out])
    }
}

/// One line of outputs.
fn max_line(simd: Simd, x: &[u8], axes: &[Axis; 2], c: usize, oy: usize, flip: u8, out: &mut [u8]) {
    let [ay, ax] = axes;
    out.fill(flip);
    dispatch(
        simd,
        #[inline(always)]
        || {
            for ky in ay.taps(oy) {
                let line = &x[ay.at(oy, ky) * ax.input * c..][..ax.input * c];
                for (ox, out) in out.chunks_exact_mut(c).enumerate() {
                    for kx in ax.taps(ox) {
                        let x = &line[ax.at(ox, kx) * c..][..c];
                        larger(x, out, flip);
                    }
                }
            }
        },
    );
}

#[inline(always)]
fn larger(x: &[u8], out: &mut [u8], flip: u8) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = (*out ^ flip).max(*x ^ flip) ^ flip;
    }
}

/// `GlobalAveragePool` of bytes `[n, h, w, c]` to bytes `[n, 1, 1, c]`.
#[derive(Debug, Clone, PartialEq)]
pub struct QGlobalAveragePool {
    /// The input's quantisation.
    pub x: Quant,
    /// The output's quantisation.
    pub y: Quant,
}

impl Op for QGlobalAveragePool {
    fn name(&self) -> &'static str {
        "QGlobalAveragePoolNhwc"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = image(inputs)?;
        same_dtype("the input", self.x.dtype, x.ty.dtype)?;
        self.x.check()?;
        self.y.check()?;
        let one = Dim::Known(1);
        let shape = match x.sym_shape() {
            Some([n, _, _, c]) => Some(vec![n.clone(), one.clone(), one, c.clone()]),
            _ => None,
        };
        Ok(output(self.y.dtype, shape))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        plane_axes()
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| elements(x))
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "limited to a byte; sums round to f32 by definition"
    )]
    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let [_, h, w, c] = x.shape()[..] else { return Ok(Vec::new()) };
        let mut out = ctx.alloc(dtype, shape)?;
        let plane = h * w;
        if plane == 0 || plane > 1 << 23 {
            return Err(Error::unsupported(format!("{plane} pixels")));
        }
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let (flip, zero) = (self.x.flip(), self.x.unsigned_zero());
        let scale = self.x.scale / (self.y.scale * plane as f32);
        let out_zero = self.y.unsigned_zero();
        let x = x.as_bytes();
        // Pieces of an image's channels, so that threads can share a single image.
        let pieces = c.div_ceil(CHANNELS);
        let images = out.len() / c;
        let to = Shared::new(out.as_bytes_mut()?);
        let units = images * pieces;
        let parts = ctx.parts(units, x.len() / 4);
        let each = units.div_ceil(parts);
        ctx.parallel(units.div_ceil(each), |part| {
            for unit in part * each..units.min((part + 1) * each) {
                let (image, first) = (unit / pieces, unit % pieces * CHANNELS);
                let channels = CHANNELS.min(c - first);
                let mut sums = [0i32; CHANNELS];
                let sums = &mut sums[..channels];
                let x = &x[image * plane * c..][..plane * c];
                dispatch(
                    ctx.simd(),
                    #[inline(always)]
                    || {
                        for pixel in x.chunks_exact(c) {
                            accumulate(&pixel[first..][..channels], sums, flip);
                        }
                    },
                );
                // SAFETY: only one part writes each piece.
                let out = unsafe { to.slice(image * c + first..image * c + first + channels) };
                for (out, sum) in out.iter_mut().zip(sums) {
                    let centred = i64::from(*sum) - plane as i64 * i64::from(zero);
                    let q = round((centred as f32 * scale).clamp(-LARGE, LARGE)) + out_zero;
                    *out = q.clamp(0, 255) as u8 ^ self.y.flip();
                }
            }
        });
        Ok(vec![out])
    }
}

/// Channels summed at once.
const CHANNELS: usize = 256;

#[inline(always)]
fn accumulate(x: &[u8], sums: &mut [i32], flip: u8) {
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum += i32::from(*x ^ flip);
    }
}

/// The only input: bytes of rank 4.
fn image<'a>(inputs: &[Option<&'a ValueInfo>]) -> Result<&'a ValueInfo> {
    let x = required(inputs, 0)?;
    if !matches!(x.ty.dtype, DType::I8 | DType::U8) {
        return Err(Error::invalid(format!("the input has dtype {}", x.ty.dtype)));
    }
    rank("the input", x, 4)?;
    Ok(x)
}
