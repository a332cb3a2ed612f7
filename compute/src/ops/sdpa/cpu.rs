//! Attention on the CPU.

use super::Sdpa;
use super::few::{self, Matrix};
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::gemm::{self, Packed, Rows};
use crate::isa::Simd;
use crate::number::Number;
use crate::op::Context;
use crate::ops::math;
use crate::par::Shared;
use crate::reduction::fold;
use crate::simd::dispatch;
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::Range;

/// About the number of words that the scores of a block of rows take.
const BLOCK: usize = 1 << 15;

/// A tensor's elements by four axes; the step of an axis of size 1 is 0, so that it repeats.
struct Grid<'a> {
    data: &'a [f32],
    dims: [usize; 4],
    steps: [usize; 4],
}

impl<'a> Grid<'a> {
    fn new(x: &'a TensorView<'_>, axes: [usize; 4]) -> Result<Self> {
        let mut dims = [1; 4];
        let rank = x.shape().rank().min(4);
        dims[4 - rank..].copy_from_slice(&x.shape().dims()[..rank]);
        let mut steps = [0; 4];
        let mut step = 1;
        for axis in (0..4).rev() {
            steps[axis] = if dims[axis] == 1 { 0 } else { step };
            step *= dims[axis];
        }
        let data = x.as_slice::<f32>()?;
        Ok(Self { data, dims: axes.map(|a| dims[a]), steps: axes.map(|a| steps[a]) })
    }

    /// The matrix of a batch and head.
    fn matrix(&self, b: usize, h: usize) -> Matrix<'a> {
        Matrix { data: self.from(b, h), steps: [self.steps[2], self.steps[3]] }
    }

    /// The elements from a batch and head on.
    fn from(&self, b: usize, h: usize) -> &'a [f32] {
        &self.data[b * self.steps[0] + h * self.steps[1]..]
    }
}

struct Job<'a> {
    q: Grid<'a>,
    k: Grid<'a>,
    v: Grid<'a>,
    mask: Option<Grid<'a>>,
    scale: f32,
    sharing: usize,
    swapped: bool,
    /// Batches, heads, rows, columns of the output.
    out: [usize; 4],
    /// Rows of scores that are computed at once.
    block: usize,
    simd: Simd,
}

pub(super) fn run(
    op: &Sdpa,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let grid = |i, axes| Grid::new(required(inputs, i)?, axes);
    let (q, k, v) = (grid(0, op.q)?, grid(1, op.k)?, grid(2, op.v)?);
    let mask = optional(inputs, 3).map(|m| Grid::new(m, [0, 1, 2, 3])).transpose()?;
    let mut out = ctx.alloc(dtype, shape)?;
    let &[b, first, second, e] = out.shape().dims() else {
        return Err(Error::invalid("the output is not of rank 4"));
    };
    let (h, s) = if op.swapped { (second, first) } else { (first, second) };
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (d, t) = (q.dims[3], k.dims[3]);
    if t == 0 {
        // Without keys, each output is an empty sum.
        out.as_mut_slice::<f32>()?.fill(0.);
        return Ok(vec![out]);
    }
    let block = block(s, t);
    let job = Job {
        q,
        k,
        v,
        mask,
        scale: op.scale,
        sharing: op.sharing,
        swapped: op.swapped,
        out: [b, h, s, e],
        block,
        simd: ctx.simd(),
    };
    // With fewer heads than threads, the rows of a head are split, too.
    let heads = b * h;
    let pieces = ctx.threads().div_ceil(heads).min(s.div_ceil(block));
    let rows = s.div_ceil(pieces);
    let units = heads * pieces;
    let parts =
        ctx.parts(units, heads.saturating_mul(s).saturating_mul(t).saturating_mul(d + e) / 8);
    let each = units.div_ceil(parts);
    let parts = units.div_ceil(each);
    let size = scratch(s, d, t, e).ok_or_else(|| Error::invalid("the sizes are too large"))?;
    let mut scratch = ctx.scratch(DType::F32, [parts, size])?;
    let scratch = Shared::new(scratch.as_mut_slice::<f32>()?);
    let target = Shared::new(out.as_mut_slice::<f32>()?);
    ctx.parallel(parts, |i| {
        // SAFETY: each part runs once and has scratch memory of its own.
        let scratch = unsafe { scratch.slice(i * size..(i + 1) * size) };
        for unit in i * each..units.min((i + 1) * each) {
            let (head, piece) = (unit / pieces, unit % pieces);
            let rows = piece * rows..s.min((piece + 1) * rows);
            if s <= few::ROWS {
                job.few(head / h, head % h, rows, scratch, &target);
            } else {
                job.head(head / h, head % h, rows, scratch, &target);
            }
        }
    });
    Ok(vec![out])
}

/// Rows of scores that are computed at once; `t` is not 0.
fn block(s: usize, t: usize) -> usize {
    (BLOCK / t.max(1)).clamp(12, 96).min(s)
}

/// Words of scratch memory that a thread needs for `s` rows.
pub(super) fn scratch(s: usize, d: usize, t: usize, e: usize) -> Option<usize> {
    if s <= few::ROWS {
        return Some(t);
    }
    let block = block(s, t);
    let packed = Packed::words(d, t)?.checked_add(Packed::words(t, e)?)?;
    packed.checked_add(block.checked_mul(t.checked_add(e)?)?)?.checked_add(block)
}

impl Job<'_> {
    /// A few rows of one head, without packing. `scores` holds a row of them.
    fn few(
        &self,
        b: usize,
        h: usize,
        rows: Range<usize>,
        scores: &mut [f32],
        out: &Shared<'_, f32>,
    ) {
        let shared = h / self.sharing;
        let (k, v) = (self.k.matrix(b, shared), self.v.matrix(b, shared));
        for row in rows {
            let q = &self.q.from(b, h)[row * self.q.steps[2]..][..self.q.dims[3]];
            k.times(self.simd, q, scores);
            let factor = 1. / self.softmax(scores, b, h, row);
            // SAFETY: each row of each head is written by one part.
            let to = unsafe { out.slice(self.place(b, h, row)) };
            v.times(self.simd, scores, to);
            to.iter_mut().for_each(|to| *to *= factor);
        }
    }

    /// Where the output of a row is.
    fn place(&self, b: usize, h: usize, row: usize) -> Range<usize> {
        let [_, heads, s, e] = self.out;
        let at = if self.swapped { (b * s + row) * heads + h } else { (b * heads + h) * s + row };
        at * e..(at + 1) * e
    }

    /// Some rows of one head.
    fn head(
        &self,
        b: usize,
        h: usize,
        rows: Range<usize>,
        scratch: &mut [f32],
        out: &Shared<'_, f32>,
    ) {
        let e = self.out[3];
        let (d, t) = (self.q.dims[3], self.k.dims[3]);
        let (Some(size_k), Some(size_v)) = (Packed::words(d, t), Packed::words(t, e)) else {
            return;
        };
        let (k, rest) = scratch.split_at_mut(size_k);
        let (v, rest) = rest.split_at_mut(size_v);
        let (scores, rest) = rest.split_at_mut(self.block * t);
        let (result, sums) = rest.split_at_mut(self.block * e);
        let shared = h / self.sharing;
        gemm::pack(self.k.from(b, shared), (d, t), (self.k.steps[2], self.k.steps[3]), k);
        gemm::pack(self.v.from(b, shared), (t, e), (self.v.steps[2], self.v.steps[3]), v);
        let (Some(k), Some(v)) = (Packed::new(k, d, t), Packed::new(v, t, e)) else { return };
        for first in rows.clone().step_by(self.block) {
            let m = self.block.min(rows.end - first);
            let q =
                Rows { words: &self.q.from(b, h)[first * self.q.steps[2]..], row: self.q.steps[2] };
            let scores = &mut scores[..m * t];
            gemm::multiply_here(self.simd, m, q, k, (scores, t));
            for (i, (row, sum)) in scores.chunks_exact_mut(t).zip(&mut *sums).enumerate() {
                *sum = self.softmax(row, b, h, first + i);
            }
            let result = &mut result[..m * e];
            gemm::multiply_here(self.simd, m, Rows { words: scores, row: t }, v, (result, e));
            for (i, (from, sum)) in result.chunks_exact(e).zip(&*sums).enumerate() {
                // SAFETY: each row of each head is written by one part.
                let to = unsafe { out.slice(self.place(b, h, first + i)) };
                let factor = 1. / sum;
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from * factor);
            }
        }
    }

    /// Turns a row of scores into exponentials and returns their sum.
    fn softmax(&self, row: &mut [f32], b: usize, h: usize, i: usize) -> f32 {
        let scale = self.scale;
        let mask = self.mask.as_ref().map(|m| (&m.from(b, h)[i * m.steps[2]..], m.steps[3]));
        dispatch(
            self.simd,
            #[inline(always)]
            || {
                match mask {
                    Some((mask, 1)) => {
                        row.iter_mut().zip(mask).for_each(|(x, m)| *x = *x * scale + m);
                    }
                    Some((mask, _)) => {
                        let m = mask[0];
                        row.iter_mut().for_each(|x| *x = *x * scale + m);
                    }
                    None => row.iter_mut().for_each(|x| *x *= scale),
                }
                if self.simd.fused() {
                    exponentials::<true>(row)
                } else {
                    exponentials::<false>(row)
                }
            },
        )
    }
}

#[inline(always)]
fn exponentials<const FUSED: bool>(row: &mut [f32]) -> f32 {
    let top = fold(
        row,
        f32::NEG_INFINITY,
        #[inline(always)]
        |x| x,
        Number::most,
    );
    for x in row.iter_mut() {
        *x = math::weight::<FUSED>(*x - top);
    }
    fold(
        row,
        0.,
        #[inline(always)]
        |x| x,
        Number::add,
    )
}
