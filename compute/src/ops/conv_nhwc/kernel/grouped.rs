//! One row of a convolution in groups of few channels: a few neighbouring outputs at a time, along channels.
//!
//! A register of outputs reads one input of each of its groups, spread over the group's lanes. As in a depthwise
//! convolution neighbouring outputs share inputs and weights: with stride 1 a step takes 9 inputs and 3 registers of
//! weights for 21 multiply-adds. A product with copied windows would copy an element for every few columns.

use super::depthwise::{OUTPUTS, SPAN_MAX};
use super::vector::Vector;
use super::{Body, Epilogue, LANE};

/// Width of the windows.
pub(crate) const TAPS: usize = 3;
/// The most input channels of a group. With 32, in the last layers of ResNeXt-50, the product with copied windows took
/// less time.
pub(crate) const GROUP_MAX: usize = 16;

/// Up to [`OUTPUTS`] neighbouring outputs of a window [`TAPS`] wide with stride `S`, for some of the channels.
pub(crate) struct Row<'a, const S: usize> {
    /// The pixels that the window's rows see, [`SPAN_MAX`] for each; padding is a pixel of zeros.
    pub(crate) pixels: &'a [[*const f32; SPAN_MAX]],
    /// Weights for every [`LANE`] channels, `rows × per_group × TAPS × LANE`; the pointer is at the row of the window
    /// that the first of `pixels` belongs to.
    pub(crate) weight: *const f32,
    /// Rows of the whole window.
    pub(crate) rows: usize,
    /// Channels of a group, a power of two up to [`GROUP_MAX`].
    pub(crate) per_group: usize,
    pub(crate) channels: usize,
    /// First channel, a multiple of [`LANE`], and end.
    pub(crate) range: (usize, usize),
    /// The first output's channel 0; the others follow each `channels` elements.
    pub(crate) out: *mut f32,
    /// How many outputs are stored.
    pub(crate) outputs: usize,
    pub(crate) epilogue: Epilogue<'a>,
}

impl<const S: usize> Body for Row<'_, S> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for c in (self.range.0..self.range.1).step_by(V::LANES) {
            let left = self.channels - c;
            // SAFETY: all pixels and outputs have `channels` elements, and the weights a register for each.
            unsafe {
                if self.per_group >= V::LANES {
                    let first = c / self.per_group * self.per_group;
                    // Left out of line, the closures would be compiled without the features.
                    self.lanes::<V>(
                        c,
                        #[inline(always)]
                        |pixel, i| V::splat(*pixel.add(first + i)),
                    );
                } else {
                    self.lanes::<V>(
                        c,
                        #[inline(always)]
                        |pixel, i| V::load_up_to(pixel.add(c), left).spread(self.per_group, i),
                    );
                }
            }
        }
        if let Some(activation) = self.epilogue.activation {
            for o in 0..self.outputs {
                // SAFETY: these elements were just written.
                let out = unsafe {
                    let first = self.out.add(o * self.channels + self.range.0);
                    std::slice::from_raw_parts_mut(first, self.range.1 - self.range.0)
                };
                activation.apply(V::FUSED, out);
            }
        }
    }
}

impl<const S: usize> Row<'_, S> {
    /// The outputs' channels from `c` on, as many as a register holds. `input` gives, for each lane, input `i` of
    /// the lane's group in a pixel.
    #[inline(always)]
    unsafe fn lanes<V: Vector>(&self, c: usize, input: impl Fn(*const f32, usize) -> V) {
        let left = self.channels - c;
        // SAFETY: `c` is a channel, and what is read and written stays inside a pixel.
        unsafe {
            let e = &self.epilogue;
            let start = match e.bias.is_null() {
                true => V::splat(0.),
                false => V::load_up_to(e.bias.add(c), left),
            };
            let mut acc = [start; OUTPUTS];
            let block = self.rows * self.per_group * TAPS * LANE;
            // Where no row of the window lies in the image, this is the weights' end and nothing is read.
            let mut weight = self.weight.wrapping_add(c / LANE * block + c % LANE);
            for pixels in self.pixels {
                for i in 0..self.per_group {
                    let mut w = [V::splat(0.); TAPS];
                    for kx in 0..TAPS {
                        w[kx] = V::load(weight.add(kx * LANE));
                    }
                    weight = weight.add(TAPS * LANE);
                    for at in 0..(OUTPUTS - 1) * S + TAPS {
                        let x = input(pixels[at], i);
                        for o in 0..OUTPUTS {
                            if at >= o * S && at - o * S < TAPS {
                                acc[o] = x.fma(w[at - o * S], acc[o]);
                            }
                        }
                    }
                }
            }
            let (low, high) = (V::splat(e.low), V::splat(e.high));
            for (o, &acc) in acc.iter().enumerate().take(self.outputs) {
                let at = o * self.channels + c;
                let acc = match e.residual.is_null() {
                    true => acc,
                    false => acc.add(V::load_up_to(e.residual.add(at), left)),
                };
                acc.clamp(low, high).store_up_to(self.out.add(at), left);
            }
        }
    }
}
