//! Rows of a product that are windows of images or of their padded copy.

use crate::qgemm::Rows;
use crate::window::Axis;

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

    fn advance(&mut self, axes: &[Axis; 2]) {
        self.x += 1;
        if self.x == axes[1].output {
            self.next_line(axes);
        }
    }

    fn next_line(&mut self, [y, _]: &[Axis; 2]) {
        (self.x, self.y) = (0, self.y + 1);
        if self.y == y.output {
            (self.y, self.image) = (0, self.image + 1);
        }
    }
}

/// Rows of a product that are windows of channels-last images, read in place.
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
                let at = &mut at[(ky * ax.kernel + kx) * step..][..count];
                self.tap(Pixel::new(first, &self.axes), [ky, kx], at);
            }
        }
    }
}

impl Window<'_> {
    /// The position of one tap for the pixels from `pixel` on, a line of pixels at a time.
    fn tap(&self, mut pixel: Pixel, [ky, kx]: [usize; 2], mut at: &mut [*const u8]) {
        let [ay, ax] = &self.axes;
        // The input's pixels of a line are those from the first that is not padding on.
        let shift = kx * ax.dilation;
        let inside = |x: usize| (x + ax.begin).saturating_sub(shift).div_ceil(ax.stride);
        let (begin, end) = (inside(0), inside(ax.input));
        while !at.is_empty() {
            let count = at.len().min(ax.output - pixel.x);
            let (line, rest) = at.split_at_mut(count);
            let y = (pixel.y * ay.stride + ky * ay.dilation).wrapping_sub(ay.begin);
            let from = begin.clamp(pixel.x, pixel.x + count) - pixel.x;
            let to = end.clamp(pixel.x, pixel.x + count) - pixel.x;
            if y < ay.input && from < to {
                line[..from].fill(self.border.as_ptr());
                line[to..].fill(self.border.as_ptr());
                let first = (pixel.x + from) * ax.stride + shift - ax.begin;
                let first = (pixel.image * ay.input + y) * ax.input + first;
                let x = &self.x[first * self.c + self.first_channel..];
                let step = ax.stride * self.c;
                assert!((to - from - 1) * step < x.len(), "the pixels of a line");
                for (i, at) in line[from..to].iter_mut().enumerate() {
                    *at = x.as_ptr().wrapping_add(i * step);
                }
            } else {
                line.fill(self.border.as_ptr());
            }
            at = rest;
            pixel.next_line(&self.axes);
        }
    }
}

/// Rows of a product that are windows of a padded copy, with a segment per line of taps.
pub(super) struct Lines<'a> {
    pub(super) x: &'a [u8],
    pub(super) axes: [Axis; 2],
    /// Pixels of a line, with the padding.
    pub(super) width: usize,
    pub(super) c: usize,
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
