//! Convolution on the CPU: depthwise directly, everything else as matrix products.

use super::operands::Convolution;
use super::{Conv, depthwise, im2col};
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::matrix::{Mat, Real, product};
use crate::movement::around;
use crate::number::with_type;
use crate::op::Context;
use crate::simd::dispatch;
use crate::window::{Axis, three};
use lgp_memory::{Shape, Tensor, TensorView};

pub(super) fn run(
    op: &Conv,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
    let axes = three(&op.windows(x.shape(), weight.shape())?)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    with_type!(dtype, real T => {
        let conv = Convolution::<T> {
            ctx,
            axes: &axes,
            group: op.group,
            channels: x.shape()[1],
            maps: shape[1],
            x: x.as_slice()?,
            weight: weight.as_slice()?,
            bias: optional(inputs, 2).map(TensorView::as_slice).transpose()?,
        };
        conv.compute(&shape, out.as_mut_slice()?)
    })?;
    Ok(vec![out])
}

/// Bytes of input unfolded at once: they must still be in the second-level cache when the product
/// reads them.
const BLOCK_BYTES: usize = 512 * 1024;
/// With fewer columns, a product packs its left side too often.
const COLUMNS_MIN: usize = 256;

impl<T: Real> Convolution<'_, T> {
    fn compute(&self, shape: &Shape, out: &mut [T]) -> Result<()> {
        let (_, _, columns) = around(shape, 1);
        if out.is_empty() {
            return Ok(());
        }
        let plane: usize = self.axes.iter().map(|a| a.input).product();
        if self.channels == 0 || plane == 0 {
            self.add_bias_to_zero(out, columns);
            return Ok(());
        }
        if self.group == self.channels
            && self.maps == self.channels
            && self.group > 1
            && depthwise::run(self, out)?
        {
            return Ok(());
        }
        let (c, m) = (self.channels / self.group, self.maps / self.group);
        let taps: usize = self.axes.iter().map(|a| a.kernel).product();
        for (i, out) in out.chunks_exact_mut(m * columns).enumerate() {
            let (image, group) = (i / self.group, i % self.group);
            let x = &self.x[(image * self.channels + group * c) * plane..][..c * plane];
            let weight = &self.weight[group * m * c * taps..][..m * c * taps];
            let bias = self.bias.map(|b| &b[group * m..][..m]);
            if self.axes.iter().all(Axis::is_pointwise) {
                let size = (m, columns, c);
                product(
                    self.ctx,
                    size,
                    Mat::rows(weight, c),
                    Mat::rows(x, columns),
                    out,
                    columns,
                    false,
                )?;
                add_bias(self.ctx, out, columns, 0..columns, bias);
            } else {
                self.unfolded(x, weight, bias, out, columns)?;
            }
        }
        Ok(())
    }

    /// One group of one image: unfolds the input in blocks of output columns and multiplies.
    fn unfolded(
        &self,
        x: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        out: &mut [T],
        columns: usize,
    ) -> Result<()> {
        let m = out.len() / columns;
        let k = weight.len() / m;
        let width = block_width(k, size_of::<T>(), columns);
        let mut scratch = self.ctx.scratch(T::DTYPE, [k, width])?;
        let scratch = scratch.as_mut_slice::<T>()?;
        for start in (0..columns).step_by(width) {
            let n = width.min(columns - start);
            let block = &mut scratch[..k * n];
            self.ctx.split(block, n, n, |first, part| {
                im2col::unfold(self.ctx.simd(), self.axes, x, start, n, first, part);
            });
            let right = Mat::rows(block, n);
            product(
                self.ctx,
                (m, n, k),
                Mat::rows(weight, k),
                right,
                &mut out[start..],
                columns,
                false,
            )?;
            add_bias(self.ctx, out, columns, start..start + n, bias);
        }
        Ok(())
    }

    /// The result where nothing is summed: the bias alone.
    fn add_bias_to_zero(&self, out: &mut [T], columns: usize) {
        for (i, row) in out.chunks_exact_mut(columns).enumerate() {
            row.fill(self.bias.map_or(T::zero(), |b| b[i % self.maps]));
        }
    }
}

/// Elements of scratch memory that a convolution takes.
pub(super) fn scratch_elements(
    group: usize,
    threads: usize,
    axes: &[Axis],
    weight: &[usize],
    element_bytes: usize,
) -> usize {
    let taps: usize = weight.iter().skip(1).fold(1, |n, &d| n.saturating_mul(d));
    if group > 1 && weight[1] == 1 && weight[0] == group {
        // For each thread a padded plane in phases, and two lines as long as one phase.
        let extent = |a: &Axis| a.output.saturating_add((a.kernel - 1) * a.dilation / a.stride);
        let phase = axes.iter().fold(1usize, |n, a| n.saturating_mul(extent(a)));
        let phases = axes.iter().fold(1usize, |n, a| n.saturating_mul(a.stride));
        return phase.saturating_mul(phases.saturating_add(2)).saturating_mul(threads.min(group));
    }
    if axes.iter().all(Axis::is_pointwise) {
        return 0;
    }
    let columns: usize = axes.iter().fold(1, |n, a| n.saturating_mul(a.output));
    taps.saturating_mul(block_width(taps, element_bytes, columns))
}

/// How many output columns are unfolded at once, when each takes `k` elements.
fn block_width(k: usize, element_bytes: usize, columns: usize) -> usize {
    let row_bytes = k.saturating_mul(element_bytes).max(1);
    (BLOCK_BYTES / row_bytes).max(COLUMNS_MIN).min(columns)
}

/// Adds one value a row to a range of its columns.
fn add_bias<T: Real>(
    ctx: &Context,
    out: &mut [T],
    columns: usize,
    range: std::ops::Range<usize>,
    bias: Option<&[T]>,
) {
    let Some(bias) = bias else { return };
    ctx.split(out, columns, range.len(), |first, part| {
        for (row, &bias) in part.chunks_exact_mut(columns).zip(&bias[first..]) {
            let row = &mut row[range.clone()];
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || row.iter_mut().for_each(|o| *o = *o + bias),
            );
        }
    });
}
