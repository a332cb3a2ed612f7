//! Depthwise convolution: every channel has a window of its own.

use super::direct::{Out, share};
use super::kernel::depthwise::{OUTPUTS, Pixel, Row, SPAN_MAX};
use super::kernel::element::Element;
use super::kernel::{Epilogue, Width};
use crate::op::Context;
use crate::window::Axis;

/// A depthwise convolution with its operands.
pub(super) struct Depthwise<'a, T> {
    pub(super) width: Width,
    pub(super) axes: [Axis; 2],
    pub(super) images: usize,
    pub(super) channels: usize,
    pub(super) x: &'a [T],
    pub(super) weight: &'a [f32],
    /// A pixel of zeros.
    pub(super) zeros: &'a [T],
    pub(super) epilogue: Epilogue<'a>,
}

/// Up to [`OUTPUTS`] neighbouring outputs of a row.
pub(super) struct Strip<'a, T> {
    /// The pixels that the window's rows inside the image see; padding is a pixel of zeros.
    pub(super) pixels: &'a [[*const T; SPAN_MAX]],
    /// The first such row of the window.
    pub(super) first: usize,
    /// The first output's element of channel 0.
    pub(super) element: usize,
    pub(super) outputs: usize,
}

// SAFETY: the pointers of the epilogue are only read.
unsafe impl<T: Sync> Sync for Depthwise<'_, T> {}

impl<T: Element + Sync> Depthwise<'_, T> {
    /// # Safety
    /// `out` has room for all pixels and is written by nobody else; the operands have the sizes
    /// that the fields say; the machine has the instructions of `width`.
    pub(super) unsafe fn run(&self, ctx: &Context, out: *mut T) {
        let [ay, ax] = &self.axes;
        let rows = self.images * ay.output;
        let row = ax.output * self.channels;
        let cost = row.saturating_mul(ay.kernel * ax.kernel);
        let parts = ctx.parts(rows, rows.saturating_mul(cost) / 4);
        let out = Out(out);
        // More parts than threads: a few rows do not divide evenly.
        let parts = if parts == 1 { 1 } else { rows.min(4 * parts) };
        ctx.parallel(parts, |i| {
            let (from, to) = share(rows, parts, i);
            for index in from..to {
                // SAFETY: as the caller promises; each row is computed once.
                unsafe {
                    match (ax.dilation, ax.kernel, ax.stride) {
                        (1, 3, 1) => self.row::<3, 1>(index, &out),
                        (1, 3, 2) => self.row::<3, 2>(index, &out),
                        (1, 5, 1) => self.row::<5, 1>(index, &out),
                        (1, 5, 2) => self.row::<5, 2>(index, &out),
                        (1, 7, 1) => self.row::<7, 1>(index, &out),
                        (1, 7, 2) => self.row::<7, 2>(index, &out),
                        _ => self.any(index, &out),
                    }
                }
            }
        });
    }

    /// A pixel of an image.
    fn pixel(&self, image: usize, y: usize, x: usize) -> *const T {
        let at = ((image * self.axes[0].input + y) * self.axes[1].input + x) * self.channels;
        self.x[at..at + self.channels].as_ptr()
    }

    /// Calls `body` for one strip after the other of a row of outputs; the rows of all images are counted through. The
    /// window is `K` wide and takes steps of `S`.
    pub(super) fn strips<const K: usize, const S: usize>(
        &self,
        row: usize,
        mut body: impl FnMut(Strip<'_, T>),
    ) {
        let [ay, ax] = &self.axes;
        let (image, oy) = (row / ay.output, row % ay.output);
        let span = (OUTPUTS - 1) * S + K;
        let taps = ay.taps(oy);
        let mut pixels = vec![[self.zeros.as_ptr(); SPAN_MAX]; taps.len()];
        for ox in (0..ax.output).step_by(OUTPUTS) {
            let left = (ox * S).cast_signed() - ax.begin.cast_signed();
            for (pixels, ky) in pixels.iter_mut().zip(taps.clone()) {
                let y = ay.at(oy, ky);
                for (i, pixel) in pixels.iter_mut().enumerate().take(span) {
                    let x = left + i.cast_signed();
                    *pixel = if x >= 0 && x < ax.input.cast_signed() {
                        self.pixel(image, y, x.unsigned_abs())
                    } else {
                        self.zeros.as_ptr()
                    };
                }
            }
            body(Strip {
                pixels: &pixels,
                first: taps.start,
                element: (row * ax.output + ox) * self.channels,
                outputs: OUTPUTS.min(ax.output - ox),
            });
        }
    }

    /// One row of outputs of a window `K` wide.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn row<const K: usize, const S: usize>(&self, row: usize, out: &Out<T>) {
        self.strips::<K, S>(row, |strip| {
            // SAFETY: the strip's pixels lie in the image; the weights have a row for each tap and
            // the result a row for each output, `channels` long.
            unsafe {
                self.width.body(Row::<T, K, S> {
                    pixels: strip.pixels,
                    weight: self.weight.as_ptr().add(strip.first * K * self.channels),
                    channels: self.channels,
                    out: out.at(strip.element),
                    outputs: strip.outputs,
                    epilogue: self.epilogue.at(0, strip.element),
                });
            }
        });
    }

    /// One row of outputs of any window.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn any(&self, row: usize, out: &Out<T>) {
        let [ay, ax] = &self.axes;
        let (image, oy) = (row / ay.output, row % ay.output);
        let mut taps = Vec::with_capacity(ay.kernel * ax.kernel);
        for ox in 0..ax.output {
            taps.clear();
            for ky in ay.taps(oy) {
                for kx in ax.taps(ox) {
                    let pixel = self.pixel(image, ay.at(oy, ky), ax.at(ox, kx));
                    taps.push((pixel, ky * ax.kernel + kx));
                }
            }
            let element = (row * ax.output + ox) * self.channels;
            // SAFETY: as in `row`.
            unsafe {
                self.width.body(Pixel {
                    taps: &taps,
                    weight: self.weight.as_ptr(),
                    channels: self.channels,
                    out: out.at(element),
                    epilogue: self.epilogue.at(0, element),
                });
            }
        }
    }
}
