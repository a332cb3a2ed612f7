//! Depthwise convolution: each channel by itself, without unfolding.
//!
//! A plane is padded once and, for a stride, sorted into phases: positions that are a stride
//! apart become neighbours. Then every tap is one offset for the whole plane, and the plane is
//! one long line, which vectorises. The few columns where lines overlap are computed and dropped.

use super::operands::Convolution;
use crate::error::Result;
use crate::isa::Simd;
use crate::matrix::Real;
use crate::par::Shared;
use crate::simd::{self, dispatch};
use crate::window::Axis;

/// Sums that stay in the first-level cache while the taps are added, three at a time.
const BLOCK: usize = 2048;

/// Computes every plane; `false`, without any work, where this form does not pay.
pub(super) fn run<T: Real>(conv: &Convolution<'_, T>, out: &mut [T]) -> Result<bool> {
    let [d, h, w] = conv.axes;
    let plane = d.input * h.input * w.input;
    let outputs = d.output * h.output * w.output;
    // Where windows mostly see padding or skip most of the input, the padded plane is much larger
    // than the part that is read.
    let worth = plane.saturating_add(outputs).saturating_mul(8).saturating_add(4096);
    let Some(grid) = Grid::new(conv.axes).filter(|grid| grid.size <= worth) else {
        return Ok(false);
    };
    let taps = grid.offsets.len();
    let (threads, simd) = (conv.ctx.threads(), conv.ctx.simd());
    let planes = out.len() / outputs;
    let per_part = planes.div_ceil(threads);
    // One padded plane and one line a thread.
    let parts = planes.div_ceil(per_part);
    let size = grid.size + grid.line;
    let mut scratch = conv.ctx.scratch(T::DTYPE, [parts, size])?;
    let scratch = scratch.as_mut_slice::<T>()?;
    let body = |first: usize, scratch: &mut [T], part: &mut [T]| {
        let (padded, line) = scratch.split_at_mut(grid.size);
        padded.fill(T::zero());
        for (i, out) in part.chunks_exact_mut(outputs).enumerate() {
            let c = (first + i) % conv.channels;
            grid.sort(simd, &conv.x[(first + i) * plane..][..plane], padded);
            let bias = conv.bias.map_or(T::zero(), |b| b[c]);
            let weight = &conv.weight[c * taps..][..taps];
            grid.accumulate(simd, padded, weight, bias, line);
            grid.pick(line, out);
        }
    };
    if parts <= 1 || out.len().saturating_mul(taps) < 1 << 16 {
        body(0, &mut scratch[..size], out);
    } else {
        let len = out.len();
        let (out, scratch) = (Shared::new(out), Shared::new(scratch));
        conv.ctx.parallel(parts, |i| {
            let range = i * per_part * outputs..len.min((i + 1) * per_part * outputs);
            // SAFETY: the ranges of two parts are disjoint, and each part runs once.
            let (part, scratch) =
                unsafe { (out.slice(range), scratch.slice(i * size..(i + 1) * size)) };
            body(i * per_part, scratch, part);
        });
    }
    Ok(true)
}

/// The padded and sorted plane.
struct Grid<'a> {
    axes: &'a [Axis; 3],
    /// Positions of one phase along each axis.
    extent: [usize; 3],
    /// Elements of one phase.
    phase: usize,
    /// Elements of all phases, and room for a line to read beyond the last.
    size: usize,
    /// Elements of the long line of outputs.
    line: usize,
    /// Where each tap begins.
    offsets: Vec<usize>,
}

impl<'a> Grid<'a> {
    fn new(axes: &'a [Axis; 3]) -> Option<Self> {
        let mut extent = [0; 3];
        for (extent, axis) in extent.iter_mut().zip(axes) {
            // The padded size that the outputs reach, in strides.
            let reach = (axis.kernel - 1) * axis.dilation / axis.stride;
            *extent = axis.output.checked_add(reach)?;
        }
        let [d, h, w] = axes;
        let product = |n: &[usize]| n.iter().try_fold(1usize, |n, &m| n.checked_mul(m));
        let phase = product(&extent)?;
        let used = (d.output - 1) * extent[1] + h.output - 1;
        // Whole groups of registers, so that small planes leave no scalar remainder.
        let line = (used * extent[2] + w.output).next_multiple_of(64);
        let all = product(&[phase, d.stride, h.stride, w.stride])?;
        let mut offsets = Vec::with_capacity(d.kernel * h.kernel * w.kernel);
        for kd in 0..d.kernel {
            for kh in 0..h.kernel {
                for kw in 0..w.kernel {
                    let at = [kd * d.dilation, kh * h.dilation, kw * w.dilation];
                    offsets.push(Self::position(axes, extent, phase, at));
                }
            }
        }
        let size = all.checked_add(line)?;
        Some(Self { axes, extent, phase, size, line, offsets })
    }

    /// Where a position of the padded plane lies among the sorted ones.
    fn position(axes: &[Axis; 3], extent: [usize; 3], phase: usize, at: [usize; 3]) -> usize {
        let [d, h, w] = axes;
        let which = (at[0] % d.stride * h.stride + at[1] % h.stride) * w.stride + at[2] % w.stride;
        let inside =
            (at[0] / d.stride * extent[1] + at[1] / h.stride) * extent[2] + at[2] / w.stride;
        which * phase + inside
    }

    /// Copies a plane into the padded one, whose padding is already zero.
    fn sort<T: Real>(&self, simd: Simd, x: &[T], padded: &mut [T]) {
        let [d, h, w] = self.axes;
        for (line, x) in x.chunks_exact(w.input).enumerate() {
            let at_d = line / h.input + d.begin;
            let at_h = line % h.input + h.begin;
            // Input beyond the last window is never read, and has no place.
            if at_d / d.stride >= self.extent[0] || at_h / h.stride >= self.extent[1] {
                continue;
            }
            for phase in 0..w.stride {
                // The first input whose padded position is in this phase.
                let skip = (phase + w.stride - w.begin % w.stride) % w.stride;
                let at_w = skip + w.begin;
                let Some(room) = self.extent[2].checked_sub(at_w / w.stride) else { continue };
                if skip >= x.len() || room == 0 {
                    continue;
                }
                let to = Self::position(self.axes, self.extent, self.phase, [at_d, at_h, at_w]);
                let to = &mut padded[to..to + room];
                match w.stride {
                    1 => {
                        let n = x.len().min(room);
                        to[..n].copy_from_slice(&x[..n]);
                    }
                    2 => {
                        let to = &mut to[..room.min((x.len() - skip).div_ceil(2))];
                        dispatch(
                            simd,
                            #[inline(always)]
                            || {
                                simd::every_second(
                                    to,
                                    &x[skip..],
                                    #[inline(always)]
                                    |o, x| *o = x,
                                )
                            },
                        );
                    }
                    stride => {
                        let from = x[skip..].iter().step_by(stride);
                        to.iter_mut().zip(from).for_each(|(o, x)| *o = *x);
                    }
                }
            }
        }
    }

    /// The long line: for every position the weighted sum over the taps.
    fn accumulate<T: Real>(&self, simd: Simd, padded: &[T], weight: &[T], bias: T, line: &mut [T]) {
        for (block, sums) in line.chunks_mut(BLOCK).enumerate() {
            sums.fill(bias);
            let n = sums.len();
            let at = |offset: usize| &padded[offset + block * BLOCK..][..n];
            dispatch(
                simd,
                #[inline(always)]
                || {
                    let (offsets, last_offsets) = self.offsets.as_chunks::<3>();
                    let (weights, last_weights) = weight.as_chunks::<3>();
                    for (offsets, weights) in offsets.iter().zip(weights) {
                        add_three(sums, offsets.map(at), *weights);
                    }
                    for (offset, weight) in last_offsets.iter().zip(last_weights) {
                        add_one(sums, at(*offset), *weight);
                    }
                },
            );
        }
    }

    /// Copies the outputs out of the long line.
    fn pick<T: Real>(&self, line: &[T], out: &mut [T]) {
        let [_, h, w] = self.axes;
        for (i, out) in out.chunks_exact_mut(w.output).enumerate() {
            let (od, oh) = (i / h.output, i % h.output);
            let from = (od * self.extent[1] + oh) * self.extent[2];
            out.copy_from_slice(&line[from..from + w.output]);
        }
    }
}

/// `sums += a · u + b · v + c · w`: three taps for one pass over the sums.
#[inline(always)]
fn add_three<T: Real>(sums: &mut [T], [a, b, c]: [&[T]; 3], [u, v, w]: [T; 3]) {
    for (((sum, a), b), c) in sums.iter_mut().zip(a).zip(b).zip(c) {
        *sum = *sum + *a * u + *b * v + *c * w;
    }
}

/// `sums += a · u`.
#[inline(always)]
fn add_one<T: Real>(sums: &mut [T], a: &[T], u: T) {
    for (sum, a) in sums.iter_mut().zip(a) {
        *sum = *sum + *a * u;
    }
}
