//! Fourier transforms on the CPU, line by line in f64.

use super::fft::{Complex, Plan};
use super::{Dft, Stft};
use crate::args::{concrete_one, infos, optional, required};
use crate::error::{Error, Result};
use crate::list::list;
use crate::matrix::Real;
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use num_traits::cast;
use std::sync::OnceLock;

fn wide<T: Real>(x: T) -> f64 {
    cast(x).unwrap_or(f64::NAN)
}

/// Element `i` of a tensor whose elements have one or two parts.
fn element<T: Real>(x: &[T], i: usize, parts: usize) -> Complex {
    if parts == 2 { (wide(x[2 * i]), wide(x[2 * i + 1])) } else { (wide(x[i]), 0.) }
}

pub(super) fn dft(
    op: &Dft,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let known = infos(inputs)?;
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let Some((along, Some(n))) = op.plan(&known)? else {
        return Err(Error::unsupported("an axis or a length that is no number"));
    };
    let x = required(inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let rank = shape.rank();
    let (size, parts) = (x.shape()[along], x.shape()[rank - 1]);
    let (kept, out_parts) = (shape[along], shape[rank - 1]);
    // Distance between neighbours on the axis, in elements of one or two parts.
    let inner: usize = shape[along + 1..rank - 1].iter().product();
    let plan = Plan::new(n)?;
    let cost = inner.saturating_mul(plan.len()).saturating_mul(64);
    with_type!(dtype, real T => {
        let x = x.as_slice::<T>()?;
        let block = kept * inner * out_parts;
        split(ctx, out.as_mut_slice::<T>()?, (block, cost), &plan, |first, part, line, work| {
            for (i, part) in part.chunks_exact_mut(block).enumerate() {
                let start = (first + i) * size * inner;
                for at in 0..inner {
                    line.clear();
                    let given = (0..n.min(size)).map(|j| element(x, start + j * inner + at, parts));
                    line.extend(given);
                    line.resize(n, (0., 0.));
                    if op.inverse && op.one_sided {
                        mirror(line, size);
                    }
                    plan.run(line, work, op.inverse);
                    let scale = if op.inverse { 1. / cast::<_, f64>(n).unwrap_or(1.) } else { 1. };
                    for (j, (re, im)) in line.iter().take(kept).enumerate() {
                        let to = (j * inner + at) * out_parts;
                        part[to] = cast(re * scale).unwrap_or(T::NAN);
                        if out_parts == 2 {
                            part[to + 1] = cast(im * scale).unwrap_or(T::NAN);
                        }
                    }
                }
            }
        })
    })?;
    Ok(vec![out])
}

/// [`Context::split`] with a line and working memory for each part. `unit` and `cost` are as there.
fn split<T: Real>(
    ctx: &Context,
    out: &mut [T],
    (unit, cost): (usize, usize),
    plan: &Plan,
    transform: impl Fn(usize, &mut [T], &mut Vec<Complex>, &mut [Complex]) + Sync,
) -> Result<()> {
    let failed = OnceLock::new();
    ctx.split(out, unit, cost, |first, part| {
        let line = list(std::iter::repeat_n((0., 0.), plan.len()));
        match line.and_then(|line| Ok((line, plan.work()?))) {
            Ok((mut line, mut work)) => transform(first, part, &mut line, &mut work),
            // The first error is enough: all parts fail with the same one.
            Err(error) => _ = failed.set(error),
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Completes the frequencies of a real signal from those up to the middle.
fn mirror(line: &mut [Complex], given: usize) {
    let n = line.len();
    for j in n / 2 + 1..n {
        let (re, im) = if n - j < given { line[n - j] } else { (0., 0.) };
        line[j] = (re, -im);
    }
    // The ends have no imaginary part in a real signal's transform.
    line[0].1 = 0.;
    if n.is_multiple_of(2) {
        line[n / 2].1 = 0.;
    }
}

pub(super) fn stft(
    op: &Stft,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let known = infos(inputs)?;
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let Some([n, step]) = op.frame(&known)? else {
        return Err(Error::unsupported("a step or a length that is no number"));
    };
    let (x, window) = (required(inputs, 0)?, optional(inputs, 2));
    let mut out = ctx.alloc(dtype, shape.clone())?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (frames, kept) = (shape[1], shape[2]);
    let (length, parts) = (x.shape()[1], x.shape()[2]);
    let plan = Plan::new(n)?;
    with_type!(dtype, real T => {
        let x = x.as_slice::<T>()?;
        let window = window.map(TensorView::as_slice::<T>).transpose()?;
        let unit = (kept * 2, n.saturating_mul(64));
        split(ctx, out.as_mut_slice::<T>()?, unit, &plan, |first, part, line, work| {
            for (i, part) in part.chunks_exact_mut(kept * 2).enumerate() {
                let (signal, frame) = ((first + i) / frames, (first + i) % frames);
                let start = signal * length + frame * step;
                line.clear();
                for j in 0..n {
                    let (re, im) = element(x, start + j, parts);
                    let weight = window.map_or(1., |window| wide(window[j]));
                    line.push((re * weight, im * weight));
                }
                plan.run(line, work, false);
                for (to, (re, im)) in part.chunks_exact_mut(2).zip(&*line) {
                    to[0] = cast(*re).unwrap_or(T::NAN);
                    to[1] = cast(*im).unwrap_or(T::NAN);
                }
            }
        })
    })?;
    Ok(vec![out])
}
