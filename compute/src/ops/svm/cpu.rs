//! Support vector machines on the CPU.

use super::{Decision, Kernel, Svm, couple};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op};
use crate::post_transform::logistic;
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &Svm,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let columns = x.shape().last().copied().unwrap_or(0);
    if columns != op.features {
        let message = format!("{columns} features, expected {}", op.features);
        return Err(Error::invalid(message));
    }
    let x = crate::ops::Cast { to: DType::F32 }.run(ctx, &[Some(x.clone())])?;
    let x = x.first().ok_or_else(|| Error::invalid("no input"))?.as_slice::<f32>()?;
    let mut out = ctx.alloc(dtype, shape)?;
    let unit = op.scores();
    let cost = op.vectors.len().saturating_add(op.coefficients.len()) + unit;
    ctx.split(out.as_mut_slice::<f32>()?, unit, cost, |first, part| {
        let mut kernels = vec![0.; op.vectors.len() / op.features.max(1)];
        let mut pairs = vec![0.; op.decision.pairs()];
        for (i, out) in part.chunks_exact_mut(unit).enumerate() {
            let row = &x[(first + i) * columns..][..columns];
            for (k, v) in kernels.iter_mut().zip(op.vectors.chunks_exact(op.features.max(1))) {
                *k = kernel(op.kernel, row, v);
            }
            decide(op, &kernels, &mut pairs, out);
        }
    });
    Ok(vec![out])
}

fn kernel(kernel: Kernel, x: &[f32], v: &[f32]) -> f64 {
    let pairs = || x.iter().zip(v).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let dot = || pairs().map(|(a, b)| a * b).sum::<f64>();
    match kernel {
        Kernel::Linear => dot(),
        Kernel::Poly { gamma, offset, degree } => {
            (f64::from(gamma) * dot() + f64::from(offset)).powf(degree.into())
        }
        Kernel::Rbf { gamma } => {
            (-f64::from(gamma) * pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>()).exp()
        }
        Kernel::Sigmoid { gamma, offset } => (f64::from(gamma) * dot() + f64::from(offset)).tanh(),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "scores are f32 by specification")]
fn decide(op: &Svm, kernels: &[f64], pairs: &mut [f64], out: &mut [f32]) {
    let dot = |coefficients: &[f32], kernels: &[f64]| -> f64 {
        coefficients.iter().zip(kernels).map(|(c, k)| f64::from(*c) * k).sum()
    };
    match &op.decision {
        Decision::Regression => {
            out[0] = (dot(&op.coefficients, kernels) + f64::from(op.rho[0])) as f32;
        }
        Decision::Pairs(counts) => {
            by_pairs(op, counts, kernels, pairs, dot);
            let (scores, votes) = out.split_at_mut(pairs.len());
            votes.fill(0.);
            scores.iter_mut().zip(&*pairs).for_each(|(o, s)| *o = *s as f32);
            let each = (0..counts.len()).flat_map(|i| (i + 1..counts.len()).map(move |j| (i, j)));
            for ((i, j), score) in each.zip(&*pairs) {
                votes[if *score > 0. { i } else { j }] += 1.;
            }
        }
        Decision::Probabilities { counts, slopes, offsets } => {
            by_pairs(op, counts, kernels, pairs, dot);
            for (p, (slope, offset)) in pairs.iter_mut().zip(slopes.iter().zip(offsets)) {
                *p = logistic(-(*p * f64::from(*slope) + f64::from(*offset)));
            }
            let probabilities = couple::couple(pairs, counts.len());
            out.iter_mut().zip(probabilities).for_each(|(o, p)| *o = p as f32);
        }
    }
}

/// The score of each pair of classes: above zero for the first of the two.
fn by_pairs(
    op: &Svm,
    counts: &[usize],
    kernels: &[f64],
    pairs: &mut [f64],
    dot: impl Fn(&[f32], &[f64]) -> f64,
) {
    let mut ranges = Vec::with_capacity(counts.len());
    let mut start = 0;
    for count in counts {
        ranges.push(start..start + count);
        start += count;
    }
    let row = |i: usize| &op.coefficients[i * start..(i + 1) * start];
    let mut scores = pairs.iter_mut().zip(&op.rho);
    for (i, a) in ranges.iter().enumerate() {
        for (j, b) in ranges.iter().enumerate().skip(i + 1) {
            let Some((score, rho)) = scores.next() else { return };
            // A class's columns have a row of coefficients for each other class, in order.
            *score = dot(&row(j - 1)[a.clone()], &kernels[a.clone()])
                + dot(&row(i)[b.clone()], &kernels[b.clone()])
                + f64::from(*rho);
        }
    }
}
