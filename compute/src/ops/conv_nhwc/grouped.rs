//! Convolution in groups of few channels, each of which makes as many.

use super::ConvGeometry;
use super::depthwise::Depthwise;
use super::direct::{Out, share};
use super::kernel::LANE;
use super::kernel::grouped::{GROUP_MAX, Row, TAPS};
use crate::op::Context;

/// Bytes of weights that are used for all rows of a part before the next ones: half of a first-level cache.
const WEIGHT_BYTES: usize = 16 * 1024;

/// A convolution in groups.
pub(super) struct Grouped<'a> {
    /// The image and what a depthwise convolution has too; its weights are those of [`pack`].
    pub(super) operands: Depthwise<'a, f32>,
    /// Channels of a group.
    pub(super) per_group: usize,
}

/// Channels of a group, if this file computes the convolution.
pub(super) fn per_group(g: &ConvGeometry) -> Option<usize> {
    let per_group = g.channels.checked_div(g.group)?;
    let fits = g.channels == g.maps && per_group.is_power_of_two();
    let is_small = (2..=GROUP_MAX).contains(&per_group) && g.group > 1;
    let has_kernel = g.kernel[1] == TAPS && g.dilations[1] == 1 && [1, 2].contains(&g.strides[1]);
    (fits && is_small && has_kernel).then_some(per_group)
}

/// Elements of the packed weights, for each [`LANE`] channels `taps × per_group × LANE`; `None` where they overflow.
pub(super) fn packed_len(g: &ConvGeometry, per_group: usize) -> Option<usize> {
    let taps = g.kernel[0].checked_mul(TAPS)?;
    g.channels.checked_next_multiple_of(LANE)?.checked_mul(taps)?.checked_mul(per_group)
}

/// Packs weights `[maps, per_group, taps]` into zeros of [`packed_len`]: rows of the window, then inputs, then taps of
/// the row.
pub(super) fn pack(out: &mut [f32], weight: &[f32], per_group: usize, rows: usize) {
    let taps = rows * TAPS;
    for (map, weight) in weight.chunks_exact(per_group * taps).enumerate() {
        let block = &mut out[map / LANE * taps * per_group * LANE..];
        for (i, weight) in weight.chunks_exact(taps).enumerate() {
            for (tap, &w) in weight.iter().enumerate() {
                let at = (tap / TAPS * per_group + i) * TAPS + tap % TAPS;
                block[at * LANE + map % LANE] = w;
            }
        }
    }
}

impl Grouped<'_> {
    /// # Safety
    /// As [`Depthwise::run`].
    pub(super) unsafe fn run(&self, ctx: &Context, out: *mut f32) {
        let ([ay, ax], channels) = (&self.operands.axes, self.operands.channels);
        let rows = self.operands.images * ay.output;
        let weights = ay.kernel * TAPS * self.per_group;
        let chunk = (WEIGHT_BYTES / 4 / weights / LANE * LANE).max(LANE);
        let items = rows * channels.div_ceil(chunk);
        let cost = (rows * ax.output).saturating_mul(channels).saturating_mul(weights);
        let parts = ctx.parts(items, cost);
        let out = Out(out);
        ctx.parallel(parts, |i| {
            let (from, to) = share(items, parts, i);
            for item in from..to {
                let (first, row) = (item / rows * chunk, item % rows);
                let range = (first, channels.min(first + chunk));
                // SAFETY: as the caller promises; each row of a chunk is computed once.
                unsafe {
                    match ax.stride {
                        1 => self.row::<1>(row, range, &out),
                        _ => self.row::<2>(row, range, &out),
                    }
                }
            }
        });
    }

    /// One row of outputs, for some of the channels.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn row<const S: usize>(&self, row: usize, range: (usize, usize), out: &Out<f32>) {
        let (of, rows) = (&self.operands, self.operands.axes[0].kernel);
        of.strips::<TAPS, S>(row, |strip| {
            let first = strip.first * self.per_group * TAPS * LANE;
            // SAFETY: the strip's pixels lie in the image; the weights have a row for each of them and the result
            // a pixel for each output.
            unsafe {
                of.width.body(Row::<S> {
                    pixels: strip.pixels,
                    weight: of.weight.as_ptr().wrapping_add(first),
                    rows,
                    per_group: self.per_group,
                    channels: of.channels,
                    range,
                    out: out.at(strip.element),
                    outputs: strip.outputs,
                    epilogue: of.epilogue.at(0, strip.element),
                });
            }
        });
    }
}
