//! Walking trees on the CPU.

use super::flat::{Flat, Kind, Node};
use super::{Aggregate, TreeEnsemble};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op};
use crate::ops::Cast;
use lgp_memory::{DType, Element, Tensor, TensorView};

/// Number of rows that walk a tree one after the other, while its nodes are in the cache.
const BLOCK: usize = 64;

pub(super) fn run(
    op: &TreeEnsemble,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let columns = x.shape().last().copied().unwrap_or(0);
    if columns < op.flat.columns {
        let message = format!("{columns} features, expected at least {}", op.flat.columns);
        return Err(Error::invalid(message));
    }
    let mut out = ctx.alloc(dtype, shape)?;
    match x.dtype() {
        DType::F32 => typed::<f32>(op, ctx, x, columns, &mut out)?,
        DType::F64 => typed::<f64>(op, ctx, x, columns, &mut out)?,
        _ => {
            let wide = Cast { to: DType::F32 }.run(ctx, &[Some(x.clone())])?;
            let x = wide.first().ok_or_else(|| Error::invalid("no input"))?;
            typed::<f32>(op, ctx, &x.view(), columns, &mut out)?;
        }
    }
    Ok(vec![out])
}

fn typed<T: Element + Into<f64>>(
    op: &TreeEnsemble,
    ctx: &Context,
    x: &TensorView<'_>,
    columns: usize,
    out: &mut Tensor,
) -> Result<()> {
    let x = x.as_slice::<T>()?;
    let walk = |start: usize, count: usize, write: &mut dyn FnMut(usize, f64)| {
        scores(op, &x[start * columns..(start + count) * columns], columns, count, write);
    };
    let (unit, cost) = (op.targets, op.flat.roots.len().saturating_mul(op.flat.depth * 4));
    if out.dtype() == DType::F64 {
        ctx.split(out.as_mut_slice::<f64>()?, unit, cost, |first, part| {
            walk(first, part.len() / unit, &mut |i, y| part[i] = y);
        });
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "scores are f32 by specification")]
        ctx.split(out.as_mut_slice::<f32>()?, unit, cost, |first, part| {
            walk(first, part.len() / unit, &mut |i, y| part[i] = y as f32);
        });
    }
    Ok(())
}

/// The transformed scores of some rows, in order.
fn scores<T: Copy + Into<f64>>(
    op: &TreeEnsemble,
    x: &[T],
    columns: usize,
    count: usize,
    write: &mut dyn FnMut(usize, f64),
) {
    let empty = match op.aggregate {
        Aggregate::Sum | Aggregate::Average => 0.,
        Aggregate::Min => f64::INFINITY,
        Aggregate::Max => f64::NEG_INFINITY,
    };
    let mut sums = vec![empty; BLOCK.min(count) * op.targets];
    for first in (0..count).step_by(BLOCK) {
        let rows = BLOCK.min(count - first);
        sums.fill(empty);
        for &root in &op.flat.roots {
            for (i, sums) in sums.chunks_exact_mut(op.targets).take(rows).enumerate() {
                let row = &x[(first + i) * columns..][..columns];
                for &(target, value) in op.flat.additions(leaf(&op.flat, root, row)) {
                    let sum = &mut sums[target as usize];
                    *sum = match op.aggregate {
                        Aggregate::Sum | Aggregate::Average => *sum + value,
                        Aggregate::Min => sum.min(value),
                        Aggregate::Max => sum.max(value),
                    };
                }
            }
        }
        for (i, sums) in sums.chunks_exact_mut(op.targets).take(rows).enumerate() {
            finish(op, sums, empty);
            for (j, &y) in sums.iter().enumerate() {
                write((first + i) * op.targets + j, y);
            }
        }
    }
}

fn finish(op: &TreeEnsemble, row: &mut [f64], empty: f64) {
    #[allow(clippy::cast_precision_loss, reason = "a number of trees")]
    let trees = op.flat.roots.len() as f64;
    for (i, sum) in row.iter_mut().enumerate() {
        if sum.total_cmp(&empty).is_eq() {
            *sum = 0.;
        }
        if op.aggregate == Aggregate::Average {
            *sum /= trees;
        }
        *sum += op.base.get(i).copied().unwrap_or(0.);
    }
    op.post.apply(row);
}

/// The leaf that a row reaches.
#[inline(always)]
fn leaf<T: Copy + Into<f64>>(flat: &Flat, root: u32, row: &[T]) -> u32 {
    let mut at = root as usize;
    loop {
        let node = flat.nodes[at];
        let kind = node.kind();
        if kind == Kind::Leaf {
            return node.other;
        }
        at = if holds(flat, node, kind, row[node.column()].into()) {
            at + 1
        } else {
            node.other as usize
        };
    }
}

#[inline(always)]
#[allow(clippy::float_cmp, reason = "equality is what the split asks for")]
fn holds(flat: &Flat, node: Node, kind: Kind, x: f64) -> bool {
    let t = node.threshold;
    let holds = match kind {
        Kind::LessOrEqual => x <= t,
        Kind::Less => x < t,
        Kind::GreaterOrEqual => x >= t,
        Kind::Greater => x > t,
        Kind::Equal => x == t,
        Kind::NotEqual => x != t,
        Kind::Member => member(flat, t, x),
        Kind::Leaf => false,
    };
    holds || (node.missing_is_yes() && x.is_nan())
}

#[allow(clippy::float_cmp, reason = "membership is equality")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, stored so")]
fn member(flat: &Flat, set: f64, x: f64) -> bool {
    let set = &flat.sets[set as usize];
    let at = set.partition_point(|m| *m < x);
    set.get(at).is_some_and(|m| *m == x)
}
