//! Pooling of regions on the CPU.

use super::{MaxRoiPool, RoiAlign};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::index::{ints, position};
use crate::matrix::Real;
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use num_traits::cast;

fn number<T: Real>(n: usize) -> T {
    cast(n).unwrap_or_else(T::infinity)
}

pub(super) fn align(
    op: &RoiAlign,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, rois) = (required(inputs, 0)?, required(inputs, 1)?);
    let images = ints("the images", required(inputs, 2)?)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    let [n, c, h, w] = x.shape().dims()[..] else { return Ok(vec![out]) };
    let images: Vec<usize> = images.iter().map(|&i| position(i, n)).collect::<Result<_>>()?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let [height, width] = op.output;
    let (bins, plane) = (height * width, h * w);
    with_type!(dtype, real T => {
        let (x, rois) = (x.as_slice::<T>()?, rois.as_slice::<T>()?.as_chunks::<4>().0);
        let cost = c.saturating_mul(bins).saturating_mul(16);
        ctx.split(out.as_mut_slice::<T>()?, c * bins, cost, |first, part| {
            for (i, part) in part.chunks_exact_mut(c * bins).enumerate() {
                let image = &x[images[first + i] * c * plane..][..c * plane];
                let region = Region::new(op, rois[first + i]);
                let rows: Vec<_> = (0..height).map(|bin| region.line(op, 0, bin, h)).collect();
                let columns: Vec<_> = (0..width).map(|bin| region.line(op, 1, bin, w)).collect();
                for (channel, part) in part.chunks_exact_mut(bins).enumerate() {
                    let plane = &image[channel * plane..][..plane];
                    for (bin, out) in part.iter_mut().enumerate() {
                        *out = pooled(op, plane, w, &rows[bin / width], &columns[bin % width]);
                    }
                }
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

/// Two neighbours on an axis and the weight of the second.
type Sample<T> = (usize, usize, T);

/// The samples of a bin along one axis.
struct Line<T> {
    /// Number of samples.
    count: T,
    /// The samples that are not outside, where x counts as zero.
    inside: Vec<Sample<T>>,
}

/// The value of a bin, whose samples are all pairs of its row samples and its column samples.
fn pooled<T: Real>(
    op: &RoiAlign,
    plane: &[T],
    width: usize,
    rows: &Line<T>,
    columns: &Line<T>,
) -> T {
    // An element without weight is no part of a sample, even an infinite one.
    let part = |at: usize, weight: T| {
        if weight == T::zero() { T::zero() } else { plane[at] * weight }
    };
    let samples = rows.inside.iter().flat_map(|&(y0, y1, fy)| {
        columns.inside.iter().map(move |&(x0, x1, fx)| {
            let (gy, gx) = (T::one() - fy, T::one() - fx);
            [
                part(y0 * width + x0, gy * gx),
                part(y0 * width + x1, gy * fx),
                part(y1 * width + x0, fy * gx),
                part(y1 * width + x1, fy * fx),
            ]
        })
    });
    if op.max {
        let all = |line: &Line<T>| number::<T>(line.inside.len()) == line.count;
        // Samples outside count as zeros.
        let least = if all(rows) && all(columns) { T::neg_infinity() } else { T::zero() };
        let best = samples.flatten().fold(least, T::max);
        return if best == T::neg_infinity() { T::zero() } else { best };
    }
    let sum = samples.flatten().fold(T::zero(), |sum, x| sum + x);
    sum / (rows.count * columns.count).max(T::one())
}

/// A region in elements: where it starts, and the size of a bin. As in other engines, all is
/// calculated in the regions' dtype, because rounding decides the number of samples.
struct Region<T> {
    start: [T; 2],
    bin: [T; 2],
}

impl<T: Real> Region<T> {
    fn new(op: &RoiAlign, [x1, y1, x2, y2]: [T; 4]) -> Self {
        let scale: T = cast(op.spatial_scale).unwrap_or_else(T::nan);
        let half: T = cast(0.5).unwrap_or_else(T::nan);
        let at = |x: T| x * scale - if op.half_pixel { half } else { T::zero() };
        let size = |low: T, high: T| {
            let size = at(high) - at(low);
            // Without the half pixel a region is never smaller than an element.
            if op.half_pixel { size } else { size.max(T::one()) }
        };
        let bin = [size(y1, y2) / number(op.output[0]), size(x1, x2) / number(op.output[1])];
        Self { start: [at(y1), at(x1)], bin }
    }

    /// The samples of bin `bin` along an axis of `n` elements.
    fn line(&self, op: &RoiAlign, axis: usize, bin: usize, n: usize) -> Line<T> {
        let size = self.bin[axis];
        let count = if op.sampling_ratio > 0 { number(op.sampling_ratio) } else { size.ceil() };
        let count = count.max(T::zero());
        let half: T = cast(0.5).unwrap_or_else(T::nan);
        let start = self.start[axis] + number::<T>(bin) * size;
        let at = |i: usize| start + (number::<T>(i) + half) * size / count;
        // A region may be of any size: only the samples that can lie inside are computed, and one
        // more on each side because of rounding.
        let (mut first, mut last) = (T::zero(), count);
        if size > T::zero() {
            let index = |x: T| (x - start) / (size / count) - half;
            first = first.max(index(-T::one()).floor() - T::one());
            last = last.min(index(number(n)).ceil() + number(2));
        }
        let (first, last) =
            (cast(first.min(last)).unwrap_or(0), cast::<_, usize>(last).unwrap_or(0));
        let inside = (first..last).filter_map(|i| neighbours(at(i), n)).collect();
        Line { count, inside }
    }
}

/// The elements around a position; none where it lies over an element outside.
fn neighbours<T: Real>(x: T, n: usize) -> Option<Sample<T>> {
    if !(-T::one()..=number(n)).contains(&x) || n == 0 {
        return None;
    }
    let x = x.max(T::zero());
    let low: usize = cast(x)?;
    Some(if low + 1 >= n { (n - 1, n - 1, T::zero()) } else { (low, low + 1, x - number(low)) })
}

pub(super) fn pool(
    op: &MaxRoiPool,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, rois) = (required(inputs, 0)?, required(inputs, 1)?);
    let mut out = ctx.alloc(dtype, shape)?;
    let [n, c, h, w] = x.shape().dims()[..] else { return Ok(vec![out]) };
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let [height, width] = op.output;
    with_type!(dtype, real T => {
        let x = x.as_slice::<T>()?;
        let rois = rois.as_slice::<T>()?.as_chunks::<5>().0;
        let scale = cast(op.spatial_scale).unwrap_or(T::NAN);
        let blocks = out.as_mut_slice::<T>()?.chunks_exact_mut(c * height * width);
        for (&[image, x1, y1, x2, y2], part) in rois.iter().zip(blocks) {
            let image = cast::<_, usize>(image).filter(|&i| i < n).ok_or_else(|| {
                Error::invalid(format!("image {image} is outside a batch of {n}"))
            })?;
            // The elements of bin `i` of `bins` on an axis.
            let range = |low: T, high: T, i: usize, bins: usize, size: usize| {
                let (low, high) = ((low * scale).round(), (high * scale).round());
                let bin = (high - low + 1.).max(1.) / number::<T>(bins);
                let at = |x: T| cast::<_, usize>((x + low).clamp(0., number(size))).unwrap_or(0);
                at((number::<T>(i) * bin).floor())..at((number::<T>(i + 1) * bin).ceil())
            };
            for (at, out) in part.iter_mut().enumerate() {
                let (channel, bin) = (at / (height * width), at % (height * width));
                let plane = &x[(image * c + channel) * h * w..][..h * w];
                let rows = range(y1, y2, bin / width, height, h);
                let columns = range(x1, x2, bin % width, width, w);
                let elements = rows.flat_map(|y| columns.clone().map(move |x| plane[y * w + x]));
                *out = elements.reduce(|a, b| if b > a { b } else { a }).unwrap_or(0.);
            }
        }
        Ok(())
    })?;
    Ok(vec![out])
}
