//! Copies what the windows of a few pixels see into rows, in the order of the packed weights.
//!
//! An element that is copied is multiplied with every output channel: next to that the copy is
//! small, and it frees the products from padding, strides and cache conflicts of wide images.

use super::vector::Vector;
use super::{Body, GROUP_ROWS, ROW};

/// Where the window of an output pixel begins.
#[derive(Clone, Copy, Default)]
pub(crate) struct Origin {
    /// The image's first element.
    pub(crate) image: usize,
    /// Row of the first tap; it may lie in the padding.
    pub(crate) y: isize,
    /// Column of the first tap.
    pub(crate) x: isize,
}

/// Part of the windows of some pixels.
pub(crate) struct Gather<'a> {
    pub(crate) x: &'a [f32],
    /// Height, width and channels of an image.
    pub(crate) size: [usize; 3],
    pub(crate) kernel: [usize; 2],
    pub(crate) dilations: [usize; 2],
    /// The first channel and how many: those of a group.
    pub(crate) channels: (usize, usize),
    /// First element of the windows and how many.
    pub(crate) depth: (usize, usize),
    pub(crate) origins: &'a [Origin],
    /// Rows of [`ROW`] elements.
    pub(crate) out: *mut [f32; ROW * GROUP_ROWS],
}

impl Body for Gather<'_> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let [h, w, c] = self.size;
        let (first, count) = self.channels;
        // Without dilation the pixels of one row of the window lie together.
        let whole = count == c && self.dilations[1] == 1;
        let wide = if whole { self.kernel[1] } else { 1 };
        let (run, runs) = (count * wide, self.kernel[1] / wide);
        let (from, depth) = self.depth;
        let mut done = 0;
        while done < depth {
            let (index, start) = ((from + done) / run, (from + done) % run);
            let end = run.min(start + depth - done);
            let down = index / runs * self.dilations[0];
            let right = index % runs * self.dilations[1];
            for (i, origin) in self.origins.iter().enumerate() {
                let y = origin.y.wrapping_add_unsigned(down);
                let x = origin.x.wrapping_add_unsigned(right);
                // SAFETY: rows are `ROW` long, which exceeds the depth by a register: what is
                // written beyond the run is written again or never read.
                unsafe {
                    let out = self.out.cast::<f32>().add(i * ROW + done);
                    let row = origin.image.wrapping_add(y.cast_unsigned().wrapping_mul(w * c));
                    let at = row.wrapping_add_signed(x.wrapping_mul(c.cast_signed())) + first;
                    let visible = y.cast_unsigned() < h;
                    if visible && x >= 0 && x.unsigned_abs() + wide <= w {
                        copy::<V>(out, self.x, at + start, end - start);
                        continue;
                    }
                    // The part of the run that lies inside the image.
                    let mut inside = (0, 0);
                    if visible && x < w.cast_signed() {
                        let left = if x < 0 { x.unsigned_abs().min(wide) } else { 0 };
                        let right = w.saturating_add_signed(-x).min(wide);
                        inside = (left * count, right * count);
                    }
                    let low = inside.0.clamp(start, end);
                    let high = inside.1.clamp(low, end);
                    zero::<V>(out, low - start);
                    if high > low {
                        copy::<V>(out.add(low - start), self.x, at.wrapping_add(low), high - low);
                    }
                    zero::<V>(out.add(high - start), end - high);
                }
            }
            done += end - start;
        }
    }
}

/// Zeros `n` elements and up to a register more.
#[inline(always)]
unsafe fn zero<V: Vector>(out: *mut f32, n: usize) {
    let mut i = 0;
    while i < n {
        // SAFETY: the caller has room for one register more.
        unsafe { V::splat(0.).store(out.add(i)) };
        i += V::LANES;
    }
}

/// Copies `n` elements and up to a register more.
#[inline(always)]
unsafe fn copy<V: Vector>(out: *mut f32, x: &[f32], at: usize, n: usize) {
    assert!(at <= x.len() && n <= x.len() - at, "a window inside the image");
    let mut i = 0;
    // SAFETY: the source was just checked; the caller has room for one register more.
    unsafe {
        let from = x.as_ptr().add(at);
        let safe = (x.len() - at).min(n + V::LANES - 1);
        while i + V::LANES <= safe {
            V::load(from.add(i)).store(out.add(i));
            i += V::LANES;
        }
        if i < n {
            V::load_some(from.add(i), n - i).store(out.add(i));
        }
    }
}
