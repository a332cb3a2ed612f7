//! Unfolding an image: one row per channel and tap, one column per output position.

use crate::isa::Simd;
use crate::matrix::Real;
use crate::simd::{self, dispatch};
use crate::window::Axis;

/// Writes whole rows of the unfolded matrix, from row `first` on, for `n` output positions from
/// `start` on.
pub(super) fn unfold<T: Real>(
    simd: Simd,
    axes: &[Axis; 3],
    x: &[T],
    start: usize,
    n: usize,
    first: usize,
    out: &mut [T],
) {
    let [d, h, w] = axes;
    let plane = d.input * h.input * w.input;
    let taps = d.kernel * h.kernel * w.kernel;
    // Where windows of stride 1 keep the width, a tap only shifts the plane.
    let flat = d.input == 1 && d.output == 1 && d.kernel == 1 && d.begin == 0;
    let shifts = flat && h.stride == 1 && w.stride == 1 && w.output == w.input;
    for (i, row) in out.chunks_exact_mut(n).enumerate() {
        let (channel, tap) = ((first + i) / taps, (first + i) % taps);
        let kw = tap % w.kernel;
        let kh = tap / w.kernel % h.kernel;
        let kd = tap / w.kernel / h.kernel;
        let x = &x[channel * plane..][..plane];
        if shifts {
            shifted(h, w, x, [kh, kw], start, row);
        } else {
            line_by_line(simd, axes, x, [kd, kh, kw], start, row);
        }
    }
}

/// One row as one copy of the shifted plane, and zeros where the shift wrapped around an edge.
fn shifted<T: Real>(
    h: &Axis,
    w: &Axis,
    x: &[T],
    [kh, kw]: [usize; 2],
    start: usize,
    row: &mut [T],
) {
    let width = w.input;
    let end = start + row.len();
    let (lines, columns) = (h.valid(kh), w.valid(kw));
    // Positions on lines that the tap sees.
    let low = (lines.start * width).clamp(start, end);
    let high = (lines.end * width).clamp(low, end);
    row[..low - start].fill(T::zero());
    row[high - start..].fill(T::zero());
    if low == high || columns.is_empty() {
        row.fill(T::zero());
        return;
    }
    // Position p is read at p + ahead - behind; where that is outside, the edges below are zeroed.
    let ahead = kh * h.dilation * width + kw * w.dilation;
    let behind = h.begin * width + w.begin;
    let from = low.max(behind.saturating_sub(ahead));
    let to = high.min((x.len() + behind).saturating_sub(ahead));
    if from < to {
        let source = &x[from + ahead - behind..to + ahead - behind];
        row[from - start..to - start].copy_from_slice(source);
    }
    for line in low / width..high.div_ceil(width) {
        let edge = |columns: std::ops::Range<usize>| {
            let from = (line * width + columns.start).clamp(low, high);
            let to = (line * width + columns.end).clamp(from, high);
            from - start..to - start
        };
        row[edge(0..columns.start)].fill(T::zero());
        row[edge(columns.end..width)].fill(T::zero());
    }
}

/// One row, one output line after the other.
fn line_by_line<T: Real>(
    simd: Simd,
    [d, h, w]: &[Axis; 3],
    x: &[T],
    [kd, kh, kw]: [usize; 3],
    start: usize,
    row: &mut [T],
) {
    let valid = w.valid(kw);
    let (valid_h, valid_d) = (h.valid(kh), d.valid(kd));
    let (mut at, mut position) = (0, start);
    while at < row.len() {
        // One output line, or the part of it in the block.
        let (line, from) = (position / w.output, position % w.output);
        let to = w.output.min(from + row.len() - at);
        let segment = &mut row[at..at + to - from];
        at += to - from;
        position += to - from;
        let (od, oh) = (line / h.output, line % h.output);
        if !valid_d.contains(&od) || !valid_h.contains(&oh) {
            segment.fill(T::zero());
            continue;
        }
        let source = (d.at(od, kd) * h.input + h.at(oh, kh)) * w.input;
        let source = &x[source..source + w.input];
        line_segment(simd, w, kw, source, from..to, valid.clone(), segment);
    }
}

/// The outputs `range` of one line: zeros where the tap is in the padding.
fn line_segment<T: Real>(
    simd: Simd,
    w: &Axis,
    kw: usize,
    source: &[T],
    range: std::ops::Range<usize>,
    valid: std::ops::Range<usize>,
    out: &mut [T],
) {
    let low = valid.start.clamp(range.start, range.end);
    let high = valid.end.clamp(low, range.end);
    out[..low - range.start].fill(T::zero());
    out[high - range.start..].fill(T::zero());
    if low == high {
        return;
    }
    let out = &mut out[low - range.start..high - range.start];
    let source = &source[w.at(low, kw)..];
    match w.stride {
        1 => out.copy_from_slice(&source[..out.len()]),
        2 => dispatch(
            simd,
            #[inline(always)]
            || {
                simd::every_second(
                    out,
                    source,
                    #[inline(always)]
                    |o, x| *o = x,
                )
            },
        ),
        stride => {
            for (o, x) in out.iter_mut().zip(source.iter().step_by(stride)) {
                *o = *x;
            }
        }
    }
}
