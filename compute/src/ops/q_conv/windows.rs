//! Convolution of windows that are copied one by one. Where padding is large and strides skip most
//! of it, a padded copy of the images would be many times larger than the part that is read.

use super::rows::Pixel;
use crate::error::Result;
use crate::op::Context;
use crate::qgemm::{Epilogue, Product, Rows};
use crate::window::Axis;
use lgp_memory::DType;

/// Bytes of windows copied at once; a larger window is copied alone.
const COPIED: usize = 1 << 20;

/// Images whose windows are copied.
pub(super) struct Windows<'a> {
    pub(super) x: &'a [u8],
    /// A byte of the padding.
    pub(super) zero: u8,
    pub(super) axes: [Axis; 2],
    pub(super) c: usize,
}

/// Bytes of a window's line, padded to a multiple of four; bytes of a window; and the number of
/// windows copied at once when there is one for each of `pixels`.
pub(super) fn sizes(axes: &[Axis; 2], c: usize, pixels: usize) -> (usize, usize, usize) {
    let line = axes[1].kernel.saturating_mul(c).saturating_add(3) & !3;
    let window = line.saturating_mul(axes[0].kernel);
    (line, window, (COPIED / window.max(1)).clamp(1, pixels.max(1)))
}

impl Windows<'_> {
    /// Computes the whole output, of `m` maps.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn multiply<E: Epilogue>(
        &self,
        ctx: &Context,
        product: &Product<'_, E>,
        (out, m): (&mut [E::Out], usize),
    ) -> Result<()> {
        let (line, window, at_once) = sizes(&self.axes, self.c, out.len() / m);
        let mut copy = ctx.scratch(DType::U8, [at_once, window])?;
        for (i, out) in out.chunks_mut(at_once * m).enumerate() {
            let (first, count) = (i * at_once, out.len() / m);
            let windows = &mut copy.as_bytes_mut()?[..count * window];
            ctx.split(windows, window, window / 4, |start, part| {
                for (i, to) in part.chunks_exact_mut(window).enumerate() {
                    self.copy(first + start + i, line, to);
                }
            });
            let rows = Copies { x: windows, line, window };
            // SAFETY: a row points to the lines of a window, each padded to a multiple of four.
            unsafe { product.run(ctx, &rows, count, (out, m))? };
        }
        Ok(())
    }

    /// Copies the window of one output pixel.
    fn copy(&self, pixel: usize, line: usize, to: &mut [u8]) {
        let ([ay, ax], c) = (&self.axes, self.c);
        let pixel = Pixel::new(pixel, &self.axes);
        to.fill(self.zero);
        let taps = ax.taps(pixel.x);
        if taps.is_empty() {
            return;
        }
        for ky in ay.taps(pixel.y) {
            let y = pixel.image * ay.input + ay.at(pixel.y, ky);
            let from = (y * ax.input + ax.at(pixel.x, taps.start)) * c;
            let inside = &self.x[from..][..taps.len() * c];
            to[ky * line + taps.start * c..][..inside.len()].copy_from_slice(inside);
        }
    }
}

/// Rows of a product that are copied windows, line by line.
struct Copies<'a> {
    x: &'a [u8],
    line: usize,
    window: usize,
}

impl Rows for Copies<'_> {
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]) {
        for (ky, at) in at.chunks_exact_mut(step).take(self.window / self.line).enumerate() {
            for (i, at) in at[..count].iter_mut().enumerate() {
                let from = (first + i) * self.window + ky * self.line;
                *at = self.x[from..][..self.line].as_ptr();
            }
        }
    }
}
