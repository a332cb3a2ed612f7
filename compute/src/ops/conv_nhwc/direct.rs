//! Convolution as products of windows and packed weights.
//!
//! The windows of 14 to 18 pixels are copied beside each other, 256 elements deep (15 to 19 KiB, in
//! the first cache), and multiplied with all columns, half a MiB of weights at a time (in the second).
//! Copying an element costs a load and a store, as much as its products with some 16 columns.

use super::kernel::gather::{Gather, Origin};
use super::kernel::tile::{Block, panel_count};
use super::kernel::{DEPTH, Epilogue, GROUP_ROWS, LANE, ROW, Width};
use crate::error::Result;
use crate::op::Context;
use crate::window::Axis;
use lgp_memory::DType;
use std::mem::MaybeUninit;

/// Pixels whose sums are visited once for each part of the depth: they stay in the second-level
/// cache beside the weights. Blocks of 14 and of 18 divide them.
const PIXELS: usize = 252;
/// Bytes of weights that are used for all those pixels before the next ones.
const WEIGHT_BYTES: usize = 512 * 1024;

/// A convolution with its operands.
pub(super) struct Direct<'a> {
    pub(super) width: Width,
    pub(super) axes: [Axis; 2],
    pub(super) images: usize,
    pub(super) channels: usize,
    pub(super) maps: usize,
    pub(super) group: usize,
    /// Pixels of `channels` words: f32, or pairs of bf16 where that is the width.
    pub(super) x: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) epilogue: Epilogue<'a>,
}

/// A share of the work.
#[derive(Clone, Copy)]
struct Part {
    pixels: (usize, usize),
    panels: (usize, usize),
}

/// The result, of which parts write different elements.
#[derive(Clone, Copy)]
pub(super) struct Out<T>(pub(super) *mut T);
// SAFETY: each part of a convolution writes elements of its own.
unsafe impl<T> Sync for Out<T> {}

impl<T> Out<T> {
    /// # Safety
    /// The element lies in the result or at its end.
    pub(super) unsafe fn at(&self, element: usize) -> *mut T {
        // SAFETY: as the caller promises.
        unsafe { self.0.add(element) }
    }
}

/// Bounds of share `i` of `parts` of `n` things.
pub(super) fn share(n: usize, parts: usize, i: usize) -> (usize, usize) {
    (n * i / parts, n * (i + 1) / parts)
}

// SAFETY: the pointers of the epilogue are only read.
unsafe impl Sync for Direct<'_> {}

impl Direct<'_> {
    fn depth(&self) -> usize {
        self.axes[0].kernel * self.axes[1].kernel * (self.channels / self.group)
    }

    /// Elements of one group's packed weights.
    fn group_len(&self) -> usize {
        self.depth() * (self.maps / self.group).div_ceil(LANE) * LANE
    }

    /// Bytes for sums that are not complete, where the results are bf16.
    pub(super) fn sums_bytes(threads: usize, pixels: usize, maps: usize) -> usize {
        threads.saturating_mul(pixels.min(PIXELS)).saturating_mul(maps).saturating_mul(4)
    }

    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// `out` has room for all pixels and is written by nobody else, and so has the epilogue's
    /// result, in place of which `out` may be null; the operands have the sizes that the fields
    /// say; the machine has the instructions of `width`.
    pub(super) unsafe fn run(&self, ctx: &Context, out: *mut f32) -> Result<()> {
        let pixels = self.images * self.axes[0].output * self.axes[1].output;
        let panels = panel_count(self.maps / self.group);
        let weights = self.group_len() * self.group;
        let parts = ctx.parts(usize::MAX, pixels.saturating_mul(weights));
        // The larger operand is shared out: it is the one that should be read once.
        let image = pixels.saturating_mul(self.channels + self.maps);
        let by_panels = self.group == 1
            && panels >= 2 * parts
            && (weights > image || pixels < 2 * parts * self.width.rows());
        let mut memory = None;
        let shared = !out.is_null();
        if !shared {
            memory = Some(ctx.scratch(DType::F32, [parts, pixels.min(PIXELS) * self.maps])?);
        }
        let sums = match &mut memory {
            Some(memory) => memory.as_mut_slice::<f32>()?.as_mut_ptr(),
            None => out,
        };
        let (sums, each) = (Out(sums), pixels.min(PIXELS) * self.maps);
        ctx.parallel(parts, |i| {
            let part = if by_panels {
                Part { pixels: (0, pixels), panels: share(panels, parts, i) }
            } else {
                Part { pixels: share(pixels, parts, i), panels: (0, panels) }
            };
            for group in 0..self.group {
                // SAFETY: as the caller promises; the parts are disjoint, and so are the sums.
                unsafe {
                    if shared {
                        self.part(group, part, |pixel| sums.at(pixel * self.maps));
                    } else {
                        self.part(group, part, |_| sums.at(i * each));
                    }
                }
            }
        });
        Ok(())
    }

    /// `sums` tells where those of the pixels from a certain one on are.
    ///
    /// # Safety
    /// As `run`, for the pixels and columns of the part.
    unsafe fn part(&self, group: usize, part: Part, sums: impl Fn(usize) -> *mut f32) {
        let depth = self.depth();
        let steps = depth.div_ceil(DEPTH);
        let weight = &self.weight[group * self.group_len()..][..self.group_len()];
        let mut pixel = part.pixels.0;
        while pixel < part.pixels.1 {
            let end = part.pixels.1.min(pixel + PIXELS);
            for step in 0..steps {
                let k = share(depth, steps, step);
                let wide = (WEIGHT_BYTES / (4 * 2 * LANE * (k.1 - k.0))).max(1);
                let mut panel = part.panels.0;
                while panel < part.panels.1 {
                    let last = part.panels.1.min(panel + wide);
                    let inner = Part { pixels: (pixel, end), panels: (panel, last) };
                    // SAFETY: as the caller promises.
                    unsafe { self.pixels(group, inner, k, weight, sums(pixel)) };
                    panel = last;
                }
            }
            pixel = end;
        }
    }

    /// All pixels of a part for some of the depth.
    ///
    /// # Safety
    /// As `run`, for the pixels and columns of the part.
    unsafe fn pixels(
        &self,
        group: usize,
        part: Part,
        k: (usize, usize),
        weight: &[f32],
        sums: *mut f32,
    ) {
        let columns = self.maps / self.group;
        let channels = self.channels / self.group;
        let mut rows = Rows(MaybeUninit::uninit());
        let count = part.pixels.1 - part.pixels.0;
        let groups = count.div_ceil(self.width.rows());
        for i in 0..groups {
            let (from, to) = share(count, groups, i);
            let first = part.pixels.0 + from;
            let mut origins = [Origin::default(); GROUP_ROWS];
            self.origins(first, &mut origins[..to - from]);
            let gather = Gather {
                x: self.x,
                size: [self.axes[0].input, self.axes[1].input, self.channels],
                kernel: self.axes.map(|a| a.kernel),
                dilations: self.axes.map(|a| a.dilation),
                channels: (group * channels, channels),
                depth: (k.0, k.1 - k.0),
                origins: &origins[..to - from],
                out: rows.0.as_mut_ptr(),
            };
            let element = first * self.maps + group * columns;
            // SAFETY: the rows have room for the depth and a register; the weights hold all steps
            // of all panels; pixels and columns lie in the result.
            unsafe {
                self.width.body(gather);
                self.width.tile(&Block {
                    a: rows.0.as_ptr().cast(),
                    rows: to - from,
                    b: weight.as_ptr(),
                    stride: self.depth(),
                    steps: k,
                    columns,
                    panels: part.panels,
                    c: sums.add(from * self.maps + group * columns),
                    row: self.maps,
                    accumulate: k.0 > 0,
                    epilogue: (k.1 == self.depth())
                        .then(|| self.epilogue.at(group * columns, element)),
                });
            }
        }
    }

    /// Where the windows of successive pixels begin.
    fn origins(&self, first: usize, origins: &mut [Origin]) {
        let [ay, ax] = &self.axes;
        let (mut x, rest) = (first % ax.output, first / ax.output);
        let (mut y, mut image) = (rest % ay.output, rest / ay.output);
        for origin in origins {
            *origin = Origin {
                image: image * ay.input * ax.input * self.channels,
                y: (y * ay.stride).cast_signed() - ay.begin.cast_signed(),
                x: (x * ax.stride).cast_signed() - ax.begin.cast_signed(),
            };
            x += 1;
            if x == ax.output {
                (x, y) = (0, y + 1);
            }
            if y == ay.output {
                (y, image) = (0, image + 1);
            }
        }
    }
}

/// Rows for a tile, aligned to cache lines.
#[repr(align(64))]
struct Rows(MaybeUninit<[f32; ROW * GROUP_ROWS]>);
