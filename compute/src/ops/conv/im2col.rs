//! Unfolding an image: one row a channel and tap, one column an output position.

use crate::matrix::Real;
use crate::window::Axis;

/// Writes whole rows of the unfolded matrix, from row `first` on, for `n` output positions from
/// `start` on.
pub(super) fn unfold<T: Real>(
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
    for (i, row) in out.chunks_exact_mut(n).enumerate() {
        let (channel, tap) = ((first + i) / taps, (first + i) % taps);
        let kw = tap % w.kernel;
        let kh = tap / w.kernel % h.kernel;
        let kd = tap / w.kernel / h.kernel;
        let x = &x[channel * plane..][..plane];
        let valid = w.valid(kw);
        let (valid_h, valid_d) = (h.valid(kh), d.valid(kd));
        let (mut at, mut position) = (0, start);
        while at < n {
            // One output line, or what of it lies in the block.
            let (line, from) = (position / w.output, position % w.output);
            let to = w.output.min(from + n - at);
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
            line_segment(w, kw, source, from..to, valid.clone(), segment);
        }
    }
}

/// The outputs `range` of one line: zeros where the tap is in the padding.
fn line_segment<T: Real>(
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
    if w.stride == 1 {
        out.copy_from_slice(&source[..out.len()]);
    } else {
        out.iter_mut().zip(source.iter().step_by(w.stride)).for_each(|(o, x)| *o = *x);
    }
}
