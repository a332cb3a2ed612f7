//! One row of a depthwise convolution: a few neighbouring outputs at a time, along channels.
//!
//! Seven outputs of a row share their inputs and weights: a 3×3 window of stride 1 takes 27 loads
//! of inputs and 9 of weights for 63 multiply-adds, and memory is read in the order in which it
//! lies.

use super::element::Element;
use super::vector::Vector;
use super::{Body, Epilogue};

/// Outputs that are computed together: it divides the usual widths 112, 56, 28, 14 and 7.
pub(crate) const OUTPUTS: usize = 7;
/// Inputs that [`OUTPUTS`] outputs read in one row at most: stride 2 and a window of 7.
pub(crate) const SPAN_MAX: usize = 2 * (OUTPUTS - 1) + 7;

/// Up to [`OUTPUTS`] neighbouring outputs of a window `K` wide with stride `S`.
pub(crate) struct Row<'a, T, const K: usize, const S: usize> {
    /// The pixels that the window's rows see, [`SPAN_MAX`] for each; padding is a pixel of zeros.
    pub(crate) pixels: &'a [[*const T; SPAN_MAX]],
    /// `rows × K × channels` weights.
    pub(crate) weight: *const f32,
    pub(crate) channels: usize,
    /// The first output; the others follow each `channels` elements.
    pub(crate) out: *mut T,
    /// How many outputs are stored.
    pub(crate) outputs: usize,
    pub(crate) epilogue: Epilogue<'a>,
}

impl<T: Element, const K: usize, const S: usize> Body for Row<'_, T, K, S> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let mut c = 0;
        while c < self.channels {
            let left = self.channels - c;
            // SAFETY: all pixels, weights and outputs have `channels` elements.
            unsafe {
                if left >= V::LANES {
                    self.lanes::<V, true>(c, left);
                } else {
                    self.lanes::<V, false>(c, left);
                }
            }
            c += V::LANES;
        }
        if let Some(activation) = self.epilogue.activation {
            // SAFETY: the outputs were just written.
            let out =
                unsafe { std::slice::from_raw_parts_mut(self.out, self.outputs * self.channels) };
            T::activate::<V>(activation, out);
        }
    }
}

impl<T: Element, const K: usize, const S: usize> Row<'_, T, K, S> {
    /// The outputs' channels from `c` on, as many as a register holds, or `left` if that is not
    /// `FULL`.
    #[inline(always)]
    unsafe fn lanes<V: Vector, const FULL: bool>(&self, c: usize, left: usize) {
        // SAFETY: `c` is a channel, and what is read and written stays inside a pixel.
        unsafe {
            let load = |p| if FULL { V::load(p) } else { V::load_some(p, left) };
            let pixel = |p| if FULL { T::load::<V>(p) } else { T::load_some::<V>(p, left) };
            let e = &self.epilogue;
            let start = if e.bias.is_null() { V::splat(0.) } else { load(e.bias.add(c)) };
            let mut acc = [start; OUTPUTS];
            for (ky, pixels) in self.pixels.iter().enumerate() {
                let mut w = [V::splat(0.); K];
                for (kx, w) in w.iter_mut().enumerate() {
                    *w = load(self.weight.add((ky * K + kx) * self.channels + c));
                }
                for i in 0..(OUTPUTS - 1) * S + K {
                    let x = pixel(pixels[i].add(c));
                    for o in 0..OUTPUTS {
                        if i >= o * S && i - o * S < K {
                            acc[o] = x.fma(w[i - o * S], acc[o]);
                        }
                    }
                }
            }
            let (low, high) = (V::splat(e.low), V::splat(e.high));
            for (o, &acc) in acc.iter().enumerate() {
                if o < self.outputs {
                    let at = o * self.channels + c;
                    let acc =
                        if e.residual.is_null() { acc } else { acc.add(load(e.residual.add(at))) };
                    let acc = acc.clamp(low, high);
                    let to = self.out.add(at);
                    if FULL { T::store(acc, to) } else { T::store_some(acc, to, left) }
                }
            }
        }
    }
}

/// One output of any window.
pub(crate) struct Pixel<'a, T> {
    /// The pixels that the window sees and the positions of their weights.
    pub(crate) taps: &'a [(*const T, usize)],
    /// `taps × channels` weights.
    pub(crate) weight: *const f32,
    pub(crate) channels: usize,
    pub(crate) out: *mut T,
    pub(crate) epilogue: Epilogue<'a>,
}

impl<T: Element> Body for Pixel<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let e = &self.epilogue;
        let mut c = 0;
        while c < self.channels {
            let left = self.channels - c;
            // SAFETY: all pixels, weights and outputs have `channels` elements.
            unsafe {
                let mut acc = V::splat(0.);
                if !e.bias.is_null() {
                    acc = V::load_up_to(e.bias.add(c), left);
                }
                for &(x, tap) in self.taps {
                    let w = V::load_up_to(self.weight.add(tap * self.channels + c), left);
                    acc = T::load_up_to::<V>(x.add(c), left).fma(w, acc);
                }
                if !e.residual.is_null() {
                    acc = acc.add(V::load_up_to(e.residual.add(c), left));
                }
                let acc = acc.clamp(V::splat(e.low), V::splat(e.high));
                T::store_up_to(acc, self.out.add(c), left);
            }
            c += V::LANES;
        }
        if let Some(activation) = e.activation {
            // SAFETY: the output was just written.
            let out = unsafe { std::slice::from_raw_parts_mut(self.out, self.channels) };
            T::activate::<V>(activation, out);
        }
    }
}
