//! Einsum on the CPU: inputs are joined one after the other, each time as a batched product of
//! matrices. The next input is one that shares an axis with those before, if there is one: an outer
//! product can be larger than inputs and output.

use super::Einsum;
use super::equation::{Equation, Label};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::index::{each, pick, strides};
use crate::number::{Number, with_type};
use crate::op::{Context, Op};
use crate::ops::{MatMul, Reduce, ReduceKind};
use lgp_memory::{DType, Shape, Tensor, TensorView};

/// A tensor whose axes have distinct names.
struct Term {
    labels: Vec<Label>,
    tensor: Tensor,
}

pub(super) fn run(
    op: &Einsum,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (_, shape) = concrete_one(op, inputs)?;
    let mut views = Vec::with_capacity(inputs.len());
    for i in 0..inputs.len() {
        views.push(required(inputs, i)?);
    }
    let ranks: Vec<usize> = views.iter().map(|x| x.shape().rank()).collect();
    let equation = Equation::parse(&op.equation, &ranks)?;
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (labels, x) in equation.inputs.iter().zip(&views) {
        for (label, &n) in labels.iter().zip(x.shape().iter()) {
            match sizes.iter_mut().find(|(l, _)| l == label) {
                None => sizes.push((*label, n)),
                Some((_, size)) if *size == 1 => *size = n,
                Some(_) => {}
            }
        }
    }
    let size = |label: Label| sizes.iter().find(|(l, _)| *l == label).map_or(1, |(_, n)| *n);
    let mut terms = Vec::with_capacity(views.len());
    for (labels, x) in equation.inputs.iter().zip(&views) {
        terms.push(diagonal(ctx, labels, x, &size)?);
    }
    if terms.is_empty() {
        return Err(Error::invalid("there is no input"));
    }
    let mut joined = terms.remove(0);
    while !terms.is_empty() {
        let shares = |term: &Term| term.labels.iter().any(|label| joined.labels.contains(label));
        let next = terms.remove(terms.iter().position(shares).unwrap_or(0));
        let later = |label: &Label| {
            equation.output.contains(label) || terms.iter().any(|t| t.labels.contains(label))
        };
        let a = summed(ctx, joined, &|label| later(label) || next.labels.contains(label))?;
        let b = summed(ctx, next, &|label| later(label) || a.labels.contains(label))?;
        joined = product(ctx, &a, &b, &later)?;
    }
    let last = summed(ctx, joined, &|label| equation.output.contains(label))?;
    let kept: Vec<Label> =
        equation.output.iter().copied().filter(|label| last.labels.contains(label)).collect();
    let out = arranged(ctx, &last, &kept)?;
    // An axis that the last term lacks has size 1.
    Ok(vec![if out.len() == shape.elements()? {
        out.reshape(shape)?
    } else {
        return Err(Error::invalid("an axis of the output is lost"));
    }])
}

/// An input with one axis for each of its names; an axis of size 1 that others broadcast is left
/// out.
fn diagonal(
    ctx: &Context,
    labels: &[Label],
    x: &TensorView<'_>,
    size: &dyn Fn(Label) -> usize,
) -> Result<Term> {
    let mut kept: Vec<Label> = Vec::new();
    let (mut dims, mut steps) = (Vec::new(), Vec::new());
    for ((label, &n), step) in labels.iter().zip(x.shape().iter()).zip(strides(x.shape())) {
        if n != size(*label) {
            continue;
        }
        match kept.iter().position(|l| l == label) {
            Some(i) => steps[i] += step,
            None => {
                kept.push(*label);
                dims.push(n);
                steps.push(step);
            }
        }
    }
    if kept.len() == labels.len() {
        return Ok(Term { labels: kept, tensor: x.to_tensor()? });
    }
    let mut out = ctx.alloc(x.dtype(), dims.clone())?;
    let mut from = Vec::with_capacity(out.len());
    each(&dims, &steps, |offset| from.push(offset));
    pick(x.dtype().size(), x.as_bytes(), &from, out.as_bytes_mut()?);
    Ok(Term { labels: kept, tensor: out })
}

/// The term, summed over the axes that are not needed.
fn summed(ctx: &Context, term: Term, needed: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let gone = (0..term.labels.len()).filter(|&i| !needed(&term.labels[i]));
    let axes: Vec<i64> = gone.filter_map(|i| i64::try_from(i).ok()).collect();
    if axes.is_empty() {
        return Ok(term);
    }
    let reduce = Reduce { keep_dims: false, ..Reduce::new(ReduceKind::Sum, Some(axes)) };
    let tensor = only(reduce.run(ctx, &[Some(term.tensor.view())])?)?;
    Ok(Term { labels: term.labels.into_iter().filter(needed).collect(), tensor })
}

fn only(mut outputs: Vec<Tensor>) -> Result<Tensor> {
    outputs.pop().ok_or_else(|| Error::invalid("an operator has no output"))
}

/// The product of two terms, summed over the axes that both have and that are not needed later.
fn product(ctx: &Context, a: &Term, b: &Term, later: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let shared = |l: &Label| b.labels.contains(l);
    let of = |term: &Term, keep: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        term.labels.iter().copied().filter(|l| keep(l)).collect()
    };
    let batch = of(a, &|l| shared(l) && later(l));
    let inner = of(a, &|l| shared(l) && !later(l));
    let rows = of(a, &|l| !shared(l));
    let columns = of(b, &|l| !a.labels.contains(l));
    let size = |labels: &[Label]| -> Result<usize> {
        let dim = |l: &Label| {
            let at = |t: &Term| t.labels.iter().position(|o| o == l).map(|i| t.tensor.shape()[i]);
            at(a).or_else(|| at(b)).unwrap_or(1)
        };
        Ok(Shape::new(labels.iter().map(dim).collect::<Vec<_>>()).elements()?)
    };
    let [n, m, k, w] = [size(&batch)?, size(&rows)?, size(&inner)?, size(&columns)?];
    let left = arranged(ctx, a, &[&batch[..], &rows, &inner].concat())?;
    let right = arranged(ctx, b, &[&batch[..], &inner, &columns].concat())?;
    let out = if matches!(left.dtype(), DType::F32 | DType::F64) {
        let (left, right) = (left.reshape([n, m, k])?, right.reshape([n, k, w])?);
        only(MatMul.run(ctx, &[Some(left.view()), Some(right.view())])?)?
    } else {
        integers(ctx, &left, &right, [n, m, k, w])?
    };
    let labels = [batch, rows, columns].concat();
    let dims = labels.iter().map(|l| size(&[*l])).collect::<Result<Vec<_>>>()?;
    Ok(Term { labels, tensor: out.reshape(dims)? })
}

/// Products of matrices of integers, `[n, m, k]` and `[n, k, w]`.
fn integers(ctx: &Context, a: &Tensor, b: &Tensor, [n, m, k, w]: [usize; 4]) -> Result<Tensor> {
    let mut out = ctx.alloc(a.dtype(), [n, m, w])?;
    if out.is_empty() {
        return Ok(out);
    }
    with_type!(a.dtype(), number T => {
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        ctx.split(out.as_mut_slice::<T>()?, w, k.saturating_mul(w), |first, part| {
            for (i, out) in part.chunks_exact_mut(w).enumerate() {
                let row = first + i;
                out.fill(T::ZERO);
                let b = b[row / m * k * w..][..k * w].chunks_exact(w);
                for (&a, b) in a[row * k..][..k].iter().zip(b) {
                    out.iter_mut().zip(b).for_each(|(o, &b)| *o = o.add(a.mul(b)));
                }
            }
        });
        Ok(())
    })?;
    Ok(out)
}

/// The term's elements with its axes in the given order.
fn arranged(ctx: &Context, term: &Term, order: &[Label]) -> Result<Tensor> {
    let at = |label: &Label| term.labels.iter().position(|l| l == label);
    let perm = order.iter().map(at).collect::<Option<Vec<usize>>>();
    let perm = perm.ok_or_else(|| Error::invalid("an axis is lost"))?;
    let transpose = crate::ops::Transpose { perm: Some(perm) };
    only(transpose.run(ctx, &[Some(term.tensor.view())])?)
}
