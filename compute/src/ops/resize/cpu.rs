//! Resize on the CPU, one axis after the other.

use super::line::{Blend, Line, scale};
use super::taps::Taps;
use super::targets::Target;
use super::{CoordinateMode, Resize, ResizeMode};
use crate::args::{concrete_one, infos, optional, required};
use crate::error::{Error, Result};
use crate::matrix::Real;
use crate::movement::around;
use crate::number::with_type;
use crate::op::{Context, Op};
use crate::simd::dispatch;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use num_traits::cast;

pub(super) fn run(
    op: &Resize,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let known = infos(inputs)?;
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let dims: Vec<Dim> = x.shape().iter().map(|&d| Dim::Known(d)).collect();
    let targets = op.targets(&known, &dims)?;
    let targets = targets.ok_or_else(|| Error::unsupported("so many axes"))?;
    let crop = crop(op, optional(inputs, 1), targets.len())?;
    let mut current = x.to_tensor()?;
    let mut outside = Vec::new();
    for (i, (axis, target)) in targets.into_iter().enumerate() {
        let (from, to) = (x.shape()[axis], shape[axis]);
        let crop = crop.as_ref().map(|crop| crop[i]);
        let same =
            from == to && !matches!(target, Target::Scale(s) | Target::Fixed(_, s) if s != 1.);
        if same && crop.is_none_or(|crop| crop == (0., 1.)) {
            continue;
        }
        let line = Line { from, to, scale: scale(&target, from, to), crop };
        let mut dims = current.shape().to_vec();
        dims[axis] = to;
        let mut out = ctx.alloc(current.dtype(), dims)?;
        if !out.is_empty() && from > 0 {
            // The lists are as long as the output's axis, and the output has just fitted into memory.
            if crop.is_some() {
                outside.push((axis, line.outside()?));
            }
            match op.mode {
                ResizeMode::Nearest(rounding) => {
                    let sources = line.nearest(op.coordinates, rounding)?;
                    pick(ctx, &current, axis, &sources, &mut out)?;
                }
                ResizeMode::Linear if !op.antialias && !op.exclude_outside => {
                    with_type!(current.dtype(), real T => {
                        let sources = line.linear::<T>(op.coordinates)?;
                        blend::<T>(ctx, &current, axis, &sources, &mut out)
                    })?;
                }
                ResizeMode::Linear | ResizeMode::Cubic { .. } => {
                    let positions = (0..to).map(|i| line.position(op.coordinates, i));
                    let sources = Taps::new(op, positions, line.scale, from)?;
                    with_type!(current.dtype(), real T => {
                        gather::<T>(ctx, &current, axis, &sources, &mut out)
                    })?;
                }
            }
        }
        current = out;
    }
    extrapolate(op, ctx, &outside, &mut current)?;
    Ok(vec![current])
}

/// Start and end of each resized axis, as fractions of the axis, if the mode crops.
fn crop(op: &Resize, roi: Option<&TensorView<'_>>, axes: usize) -> Result<Option<Vec<(f64, f64)>>> {
    if op.coordinates != CoordinateMode::TfCropAndResize {
        return Ok(None);
    }
    let Some(roi) = roi else { return Err(Error::invalid("the roi is missing")) };
    let wide: Vec<f64> = match roi.dtype() {
        DType::F32 => roi.as_slice::<f32>()?.iter().map(|&x| x.into()).collect(),
        DType::F64 => roi.as_slice::<f64>()?.to_vec(),
        other => return Err(Error::unsupported(format!("a roi of {other}"))),
    };
    if wide.len() != 2 * axes {
        let message = format!("the roi has {} numbers, expected {}", wide.len(), 2 * axes);
        return Err(Error::invalid(message));
    }
    let (starts, ends) = wide.split_at(axes);
    Ok(Some(starts.iter().copied().zip(ends.iter().copied()).collect()))
}

/// Overwrites the outputs that lie outside of the input on any axis.
fn extrapolate(
    op: &Resize,
    ctx: &Context,
    outside: &[(usize, Vec<usize>)],
    out: &mut Tensor,
) -> Result<()> {
    let value = Tensor::scalar(op.extrapolation)?;
    let value = crate::ops::Cast { to: out.dtype() }.run(ctx, &[Some(value.view())])?;
    let Some(value) = value.first() else { return Ok(()) };
    for (axis, positions) in outside {
        let (_, size, inner) = around(out.shape(), *axis);
        let run = inner * out.dtype().size();
        if positions.is_empty() || out.is_empty() {
            continue;
        }
        for block in out.as_bytes_mut()?.chunks_exact_mut(size * run) {
            for &at in positions {
                let elements = block[at * run..][..run].chunks_exact_mut(value.as_bytes().len());
                elements.for_each(|to| to.copy_from_slice(value.as_bytes()));
            }
        }
    }
    Ok(())
}

/// Copies whole slices along an axis.
fn pick(ctx: &Context, x: &Tensor, axis: usize, sources: &[usize], out: &mut Tensor) -> Result<()> {
    let (_, size, inner) = around(x.shape(), axis);
    let width = x.dtype().size();
    let x = x.as_bytes();
    let out = out.as_bytes_mut()?;
    match (inner, width) {
        (1, 1) => each::<1>(ctx, x, size, sources, out),
        (1, 2) => each::<2>(ctx, x, size, sources, out),
        (1, 4) => each::<4>(ctx, x, size, sources, out),
        (1, 8) => each::<8>(ctx, x, size, sources, out),
        _ => {
            let run = inner * width;
            ctx.split(out, run, run / width, |first, part| {
                for (i, to) in part.chunks_exact_mut(run).enumerate() {
                    let (block, at) = ((first + i) / sources.len(), (first + i) % sources.len());
                    to.copy_from_slice(&x[(block * size + sources[at]) * run..][..run]);
                }
            });
        }
    }
    Ok(())
}

/// Copies single elements along the last axis.
fn each<const N: usize>(ctx: &Context, x: &[u8], size: usize, sources: &[usize], out: &mut [u8]) {
    let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    let n = sources.len();
    ctx.split(out, n, n, |first, part| {
        for (i, to) in part.chunks_exact_mut(n).enumerate() {
            let x = &x[(first + i) * size..][..size];
            to.iter_mut().zip(sources).for_each(|(to, &at)| *to = x[at]);
        }
    });
}

/// Sums weighted slices along an axis.
fn gather<T: Real>(
    ctx: &Context,
    x: &Tensor,
    axis: usize,
    sources: &Taps,
    out: &mut Tensor,
) -> Result<()> {
    let (_, size, inner) = around(x.shape(), axis);
    let x = x.as_slice::<T>()?;
    let n = sources.len();
    let cost = sources.count().saturating_mul(inner);
    ctx.split(out.as_mut_slice::<T>()?, inner * n, cost, |first, part| {
        for (i, part) in part.chunks_exact_mut(inner * n).enumerate() {
            let x = &x[(first + i) * size * inner..][..size * inner];
            for (to, taps) in part.chunks_exact_mut(inner).zip(sources.iter()) {
                to.fill(T::zero());
                for &(at, weight) in taps {
                    let weight = cast(weight).unwrap_or_else(T::zero);
                    for (to, x) in to.iter_mut().zip(&x[at * inner..][..inner]) {
                        *to = *to + *x * weight;
                    }
                }
            }
        }
    });
    Ok(())
}

/// Mixes neighbouring slices along an axis.
fn blend<T: Real>(
    ctx: &Context,
    x: &Tensor,
    axis: usize,
    sources: &[Blend<T>],
    out: &mut Tensor,
) -> Result<()> {
    let (_, size, inner) = around(x.shape(), axis);
    let x = x.as_slice::<T>()?;
    let n = sources.len();
    ctx.split(out.as_mut_slice::<T>()?, inner * n, inner * n * 3, |first, part| {
        for (i, part) in part.chunks_exact_mut(inner * n).enumerate() {
            let x = &x[(first + i) * size * inner..][..size * inner];
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || {
                    for (to, source) in part.chunks_exact_mut(inner).zip(sources) {
                        let left = &x[source.left * inner..][..inner];
                        let right = &x[source.right * inner..][..inner];
                        for (to, (a, b)) in to.iter_mut().zip(left.iter().zip(right)) {
                            *to = *a + (*b - *a) * source.weight;
                        }
                    }
                },
            );
        }
    });
    Ok(())
}
