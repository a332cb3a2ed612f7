//! Pooling of regions on the CPU.

use super::{MaxRoiPool, RoiAlign};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::index::{ints, position};
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use num_traits::cast;

fn wide(n: usize) -> f64 {
    cast(n).unwrap_or(f64::INFINITY)
}

/// Samples of an axis of one bin are no more than this: a region may be as large as it likes.
const SAMPLES_MAX: f64 = 1024.;

/// A sample: up to four elements of a plane and their weights.
type Sample = [(usize, f64); 4];

pub(super) fn align(
    op: &RoiAlign,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, rois) = (required("RoiAlign", inputs, 0)?, required("RoiAlign", inputs, 1)?);
    let images = ints("RoiAlign", "the images", required("RoiAlign", inputs, 2)?)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    let [n, c, h, w] = x.shape().dims()[..] else { return Ok(vec![out]) };
    let images: Vec<usize> =
        images.iter().map(|&i| position("RoiAlign", i, n)).collect::<Result<_>>()?;
    let [height, width] = op.output;
    let (bins, plane) = (height * width, h * w);
    if out.is_empty() {
        return Ok(vec![out]);
    }
    with_type!("RoiAlign", dtype, real T => {
        let (x, rois) = (x.as_slice::<T>()?, rois.as_slice::<T>()?);
        let cost = c.saturating_mul(bins).saturating_mul(16);
        ctx.split(out.as_mut_slice::<T>()?, c * bins, cost, |first, part| {
            for (i, part) in part.chunks_exact_mut(c * bins).enumerate() {
                let image = &x[images[first + i] * c * plane..][..c * plane];
                let mut roi = [0f64; 4];
                for (to, x) in roi.iter_mut().zip(&rois[(first + i) * 4..]) {
                    *to = cast(*x).unwrap_or(f64::NAN);
                }
                let region = Region::new(op, roi);
                for bin in 0..bins {
                    let samples = region.samples(op, [bin / width, bin % width], [h, w]);
                    for channel in 0..c {
                        let plane = &image[channel * plane..][..plane];
                        let value = |at: usize| cast::<T, f64>(plane[at]).unwrap_or(f64::NAN);
                        part[channel * bins + bin] = cast(pooled(op, &samples, value)).unwrap_or(T::NAN);
                    }
                }
            }
        });
        Ok(())
    })?;
    Ok(vec![out])
}

fn pooled(op: &RoiAlign, samples: &[Sample], value: impl Fn(usize) -> f64) -> f64 {
    let parts =
        |s: &Sample| s.map(|(at, weight)| if weight == 0. { 0. } else { value(at) * weight });
    if op.max {
        let largest = |s: &Sample| parts(s).into_iter().fold(f64::NEG_INFINITY, f64::max);
        let best = samples.iter().map(largest).fold(f64::NEG_INFINITY, f64::max);
        return if best == f64::NEG_INFINITY { 0. } else { best };
    }
    let sum: f64 = samples.iter().map(|s| parts(s).into_iter().sum::<f64>()).sum();
    sum / wide(samples.len().max(1))
}

/// A region in elements: where it starts, and the size of a bin.
struct Region {
    start: [f64; 2],
    bin: [f64; 2],
}

impl Region {
    fn new(op: &RoiAlign, [x1, y1, x2, y2]: [f64; 4]) -> Self {
        let (scale, offset) = (f64::from(op.spatial_scale), if op.half_pixel { 0.5 } else { 0. });
        let at = |x: f64| x * scale - offset;
        let size = |low: f64, high: f64| {
            let size = at(high) - at(low);
            // Without the half pixel a region is never smaller than an element.
            if op.half_pixel { size } else { size.max(1.) }
        };
        let bin = [size(y1, y2) / wide(op.output[0]), size(x1, x2) / wide(op.output[1])];
        Self { start: [at(y1), at(x1)], bin }
    }

    fn samples(&self, op: &RoiAlign, bin: [usize; 2], dims: [usize; 2]) -> Vec<Sample> {
        let line = |axis: usize| {
            let ratio = wide(op.sampling_ratio);
            let count = if op.sampling_ratio > 0 { ratio } else { self.bin[axis].ceil() };
            let count = count.clamp(0., SAMPLES_MAX);
            let samples: usize = cast(count).unwrap_or(0);
            let start = self.start[axis] + wide(bin[axis]) * self.bin[axis];
            let at = move |i: usize| start + (wide(i) + 0.5) * self.bin[axis] / count;
            (0..samples).map(at).collect::<Vec<f64>>()
        };
        let rows = line(0);
        let columns = line(1);
        rows.iter().flat_map(|&y| columns.iter().map(move |&x| bilinear(y, x, dims))).collect()
    }
}

/// The elements around a position; none where it lies over an element outside.
fn bilinear(y: f64, x: f64, [h, w]: [usize; 2]) -> Sample {
    let nothing = [(0, 0.); 4];
    if !(-1. ..=wide(h)).contains(&y) || !(-1. ..=wide(w)).contains(&x) || h == 0 || w == 0 {
        return nothing;
    }
    let line = |x: f64, n: usize| {
        let x = x.max(0.);
        let low: usize = cast(x).unwrap_or(0);
        if low + 1 >= n { (n - 1, n - 1, 0.) } else { (low, low + 1, x - wide(low)) }
    };
    let ((y0, y1, fy), (x0, x1, fx)) = (line(y, h), line(x, w));
    [
        (y0 * w + x0, (1. - fy) * (1. - fx)),
        (y0 * w + x1, (1. - fy) * fx),
        (y1 * w + x0, fy * (1. - fx)),
        (y1 * w + x1, fy * fx),
    ]
}

pub(super) fn pool(
    op: &MaxRoiPool,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, rois) = (required("MaxRoiPool", inputs, 0)?, required("MaxRoiPool", inputs, 1)?);
    let mut out = ctx.alloc(dtype, shape)?;
    let [n, c, h, w] = x.shape().dims()[..] else { return Ok(vec![out]) };
    let [height, width] = op.output;
    let scale = f64::from(op.spatial_scale);
    with_type!("MaxRoiPool", dtype, real T => {
        let x = x.as_slice::<T>()?;
        let rois = rois.as_slice::<T>()?.as_chunks::<5>().0;
        let blocks = out.as_mut_slice::<T>()?.chunks_exact_mut((c * height * width).max(1));
        for (roi, part) in rois.iter().zip(blocks) {
            let [image, x1, y1, x2, y2] = roi.map(|x| cast::<T, f64>(x).unwrap_or(f64::NAN));
            let image = cast::<_, usize>(image).filter(|&i| i < n).ok_or_else(|| {
                Error::invalid("MaxRoiPool", format!("image {image} is outside a batch of {n}"))
            })?;
            // The elements of bin `i` of `bins` on an axis.
            let range = |low: f64, high: f64, i: usize, bins: usize, size: usize| {
                let (low, high) = ((low * scale).round(), (high * scale).round());
                let bin = (high - low + 1.).max(1.) / wide(bins);
                let at = |x: f64| cast::<_, usize>((x + low).clamp(0., wide(size))).unwrap_or(0);
                at((wide(i) * bin).floor())..at((wide(i + 1) * bin).ceil())
            };
            for (at, out) in part.iter_mut().enumerate() {
                let (channel, bin) = (at / (height * width), at % (height * width));
                let plane = &x[(image * c + channel) * h * w..][..h * w];
                let rows = range(y1, y2, bin / width, height, h);
                let columns = range(x1, x2, bin % width, width, w);
                let elements = rows.flat_map(|y| columns.clone().map(move |x| plane[y * w + x]));
                *out = elements.reduce(|a, b| if b > a { b } else { a }).unwrap_or(num_traits::Zero::zero());
            }
        }
        Ok(())
    })?;
    Ok(vec![out])
}
