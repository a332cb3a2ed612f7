//! Recognises attention in the form in which exporters write it: product, scale, mask, softmax,
//! product, and the transposes around them.

use super::Pass;
use super::pattern::{Pattern, Rewrite, rewrite};
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ops::{BinaryKind, Expand, MatMul, Reshape, Sdpa, Softmax, Transpose, Unsqueeze};
use lgp_memory::{DType, Dim};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct AttentionFusion;

impl Pass for AttentionFusion {
    fn name(&self) -> &'static str {
        "attention-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        rewrite(graph, |pattern, node| {
            let (op, inputs) = attention(pattern, pattern.output(node)?)?;
            Some(Rewrite { node, op: Arc::new(op), inputs })
        })?;
        // The attention itself can read a head of keys and values for several heads of queries.
        rewrite(graph, |pattern, node| {
            let (op, inputs) = grouped(pattern, pattern.output(node)?)?;
            Some(Rewrite { node, op: Arc::new(op), inputs })
        })?;
        // The attention itself can write its heads side by side.
        rewrite(graph, |pattern, node| {
            let out = pattern.output(node)?;
            let (x, axes) = transposed(pattern, out);
            let (op, attention) = pattern.made_by::<Sdpa>(x)?;
            (axes == [0, 2, 1, 3] && !op.swapped).then(|| Rewrite {
                node,
                op: Arc::new(Sdpa { swapped: true, ..op.clone() }),
                inputs: attention.inputs.clone(),
            })
        })
    }
}

const SAME: [usize; 4] = [0, 1, 2, 3];

/// The attention that makes a value, and its inputs.
fn attention(pattern: &Pattern<'_>, out: ValueId) -> Option<(Sdpa, Vec<Option<ValueId>>)> {
    let [weights, v] = product(pattern, out)?;
    let (softmax, node) = pattern.made_by::<Softmax>(weights)?;
    if softmax.log || softmax.flatten || !matches!(softmax.axis, -1 | 3) {
        return None;
    }
    let mut scores = node.inputs.first().copied().flatten()?;
    let mut mask = None;
    let mut scale = 1.;
    if product(pattern, scores).is_none()
        && let Some(orders) = pattern.either(scores, BinaryKind::Add)
    {
        let found = orders.into_iter().find(|[x, _]| scaled_product(pattern, *x).is_some())?;
        (scores, mask) = (found[0], Some(found[1]));
    }
    let (q, k) = {
        let ([q, k], factor) = scaled_product(pattern, scores)?;
        scale *= factor;
        (q, k)
    };
    let mut side = |id: ValueId| {
        let (id, factor) = pattern.scaled(id).unwrap_or((id, 1.));
        scale *= factor;
        // A scale may also stand between two transposes.
        let (id, outer) = transposed(pattern, id);
        let (id, inner) = transposed(pattern, id);
        (id, outer.map(|axis| inner[axis]))
    };
    let ((q, q_axes), (k, k_axes)) = (side(q), side(k));
    let (v, v_axes) = transposed(pattern, v);
    let typed = [q, k, v].iter().all(|&id| {
        let f32 = pattern.graph.info(id).is_some_and(|info| info.ty.dtype == DType::F32);
        f32 && pattern.rank(id) == Some(4)
    });
    let masked = mask.is_none_or(|mask| keeps_shape(pattern, mask, scores));
    if !typed || q_axes[3] != 3 || !masked || pattern.rank(out) != Some(4) {
        return None;
    }
    let op = Sdpa { q: q_axes, k: k_axes, v: v_axes, swapped: false, scale, sharing: 1 };
    let mut inputs = vec![Some(q), Some(k), Some(v)];
    inputs.extend(mask.map(Some));
    Some((op, inputs))
}

/// The attention that makes a value, with the keys and values from before their heads are repeated.
fn grouped(pattern: &Pattern<'_>, out: ValueId) -> Option<(Sdpa, Vec<Option<ValueId>>)> {
    let (op, node) = pattern.made_by::<Sdpa>(out)?;
    let &[q, Some(k), Some(v), ref mask @ ..] = node.inputs.as_slice() else { return None };
    let ((k, times), (v, times_v)) = (repeated(pattern, k)?, repeated(pattern, v)?);
    // The heads are the second axis before and after.
    if times != times_v || op.k[1] != 1 || op.v[1] != 1 || op.sharing != 1 {
        return None;
    }
    let inputs = [q, Some(k), Some(v)].into_iter().chain(mask.iter().copied()).collect();
    Some((Sdpa { sharing: times, ..op.clone() }, inputs))
}

/// The value `[b, h, t, d]` whose heads are repeated so many times each, to `[b, h · times, t, d]`:
/// an axis after that of the heads is widened and merged with it.
fn repeated(pattern: &Pattern<'_>, id: ValueId) -> Option<(ValueId, usize)> {
    let dims = |id| Some(pattern.graph.info(id)?.ty.shape.as_ref()?.0.as_slice());
    let same = |a: &Dim, b: &Dim| *a != Dim::Unknown && a == b;
    let first = |node: &Node| node.inputs.first().copied().flatten();
    let wide = first(pattern.made_by::<Reshape>(id)?.1)?;
    let expand = pattern.made_by::<Expand>(wide)?.1;
    let narrow = first(expand)?;
    let x = first(pattern.made_by::<Unsqueeze>(narrow)?.1)?;
    let ([b, h, t, d], [_, _, one, _, _]) = (dims(x)?, dims(narrow)?) else { return None };
    let ([w0, w1, Dim::Known(times), w3, w4], [y0, Dim::Known(heads), _, y3]) =
        (dims(wide)?, dims(id)?)
    else {
        return None;
    };
    let target = expand.inputs.get(1).copied().flatten().and_then(|id| pattern.graph.constant(id));
    let ones = target
        .and_then(|target| target.as_slice::<i64>().ok())
        .is_some_and(|target| matches!(target, [1, 1, _, 1, 1]));
    let kept = ones || [(b, w0), (h, w1), (t, w3), (d, w4)].into_iter().all(|(a, b)| same(a, b));
    // The number of elements settles the length.
    let merged = same(b, y0) && same(d, y3) && h.known()?.checked_mul(*times)? == *heads;
    (kept && merged && *one == Dim::Known(1) && *times > 0).then_some((x, *times))
}

/// Whether a mask of at most four dimensions keeps the rows and columns of the scores, as far as
/// sizes are known: a mask could also widen dimensions of size 1.
fn keeps_shape(pattern: &Pattern<'_>, mask: ValueId, scores: ValueId) -> bool {
    let dims = |id| pattern.graph.info(id)?.ty.shape.as_ref().map(|shape| shape.0.as_slice());
    let (Some(mask), Some(scores)) = (dims(mask), dims(scores)) else { return false };
    let mut inner = mask.iter().rev().zip(scores.iter().rev()).take(2);
    mask.len() <= 4
        && inner.all(|(mask, score)| match (mask.known(), score.known()) {
            (Some(mask), Some(score)) => mask == 1 || mask == score,
            _ => true,
        })
}

/// The operands of a matrix product.
fn product(pattern: &Pattern<'_>, id: ValueId) -> Option<[ValueId; 2]> {
    match pattern.made_by::<MatMul>(id)?.1.inputs.as_slice() {
        [Some(a), Some(b)] => Some([*a, *b]),
        _ => None,
    }
}

/// The operands of a matrix product, and the factor by which it is scaled.
fn scaled_product(pattern: &Pattern<'_>, id: ValueId) -> Option<([ValueId; 2], f32)> {
    if let Some(both) = product(pattern, id) {
        return Some((both, 1.));
    }
    let (id, factor) = pattern.scaled(id)?;
    product(pattern, id).map(|both| (both, factor))
}

/// The input of the transpose that makes a value, and its axes; otherwise the value and its axes.
fn transposed(pattern: &Pattern<'_>, id: ValueId) -> (ValueId, [usize; 4]) {
    let found = pattern.made_by::<Transpose>(id).and_then(|(op, node)| {
        let axes = <[usize; 4]>::try_from(op.perm.as_deref()?).ok()?;
        Some((node.inputs.first().copied().flatten()?, axes))
    });
    found.unwrap_or((id, SAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::dead_code::DeadCodeElimination;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{Attr, GraphBuilder};
    use lgp_memory::Tensor;

    #[test]
    fn an_exporters_attention_is_one_node() -> Result<()> {
        for (divides, masked) in [(false, true), (true, true), (true, false)] {
            let mut g = GraphBuilder::new("g");
            let ty = f32_type(&[None, None, Some(2), Some(8)]);
            let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, ty.clone()));
            let mask = g.input("mask", f32_type(&[None, Some(1), Some(1), None]));
            let factor = g.initializer("factor", Tensor::scalar(if divides { 4f32 } else { 0.5 })?);
            let perm = |axes: [i64; 4]| [("perm", Attr::from(axes.to_vec()))];
            let heads = perm([0, 2, 1, 3]);
            let mut q = g.node("Transpose", &[q], heads.clone());
            let mut k = g.node("Transpose", &[k], heads.clone());
            let v = g.node("Transpose", &[v], heads.clone());
            k = g.node("Transpose", &[k], perm([0, 1, 3, 2]));
            if !divides {
                q = g.node("Mul", &[q, factor], []);
                k = g.node("Mul", &[k, factor], []);
            }
            let mut scores = g.node("MatMul", &[q, k], []);
            if divides {
                scores = g.node("Div", &[scores, factor], []);
            }
            if masked {
                scores = g.node("Add", &[scores, mask], []);
            }
            let weights = g.node("Softmax", &[scores], [("axis", Attr::from(-1))]);
            let out = g.node("MatMul", &[weights, v], []);
            let out = g.node("Transpose", &[out], heads);
            g.output("y", out, ty);
            let mut graph = graph_of(g)?;
            graph.infer()?;
            AttentionFusion.run(&mut graph)?;
            DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), 1);
            let want = Sdpa {
                q: [0, 2, 1, 3],
                k: [0, 2, 3, 1],
                v: [0, 2, 1, 3],
                swapped: true,
                scale: 0.25,
                sharing: 1,
            };
            assert_eq!(graph.op::<Sdpa>(0), Some(&want));
            assert_eq!(graph.nodes[0].inputs.len(), 3 + usize::from(masked));
        }
        Ok(())
    }

    /// Heads of keys and values repeated as exporters write it are read by several heads of queries.
    #[test]
    fn repeated_heads_are_shared() -> Result<()> {
        // What the axes are widened to, and whether that repeats each head.
        for (axis, wide, shared) in [(2, [1, 1, 3, 1, 1], true), (1, [1, 3, 1, 1, 1], false)] {
            let mut g = GraphBuilder::new("g");
            let q = g.input("q", f32_type(&[Some(1), Some(6), None, Some(8)]));
            let narrow = f32_type(&[Some(1), Some(2), None, Some(8)]);
            let [k, v] = ["k", "v"].map(|name| g.input(name, narrow.clone()));
            let ints = |g: &mut GraphBuilder, name: &str, x: &[i64]| -> Result<_> {
                Ok(g.initializer(name, Tensor::from_slice([x.len()], x)?))
            };
            let axis = ints(&mut g, "axis", &[axis])?;
            let wide = ints(&mut g, "wide", &wide)?;
            let heads = ints(&mut g, "heads", &[0, 6, -1, 8])?;
            let [k, v] = [k, v].map(|x| {
                let x = g.node("Unsqueeze", &[x, axis], []);
                let x = g.node("Expand", &[x, wide], []);
                g.node("Reshape", &[x, heads], [])
            });
            let k = g.node("Transpose", &[k], [("perm", Attr::from(vec![0i64, 1, 3, 2]))]);
            let scores = g.node("MatMul", &[q, k], []);
            let weights = g.node("Softmax", &[scores], [("axis", Attr::from(-1))]);
            let y = g.node("MatMul", &[weights, v], []);
            g.output("y", y, f32_type(&[None, Some(6), None, Some(8)]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            AttentionFusion.run(&mut graph)?;
            DeadCodeElimination.run(&mut graph)?;
            let ops = (0..graph.nodes.len()).find_map(|node| graph.op::<Sdpa>(node));
            let sharing = ops.map(|op| op.sharing);
            assert_eq!(sharing, Some(if shared { 3 } else { 1 }));
            assert_eq!(graph.nodes.len() == 1, shared);
        }
        Ok(())
    }

    #[test]
    fn a_mask_that_widens_the_scores_stays() -> Result<()> {
        for (rows, nodes) in [(1, 1), (3, 4)] {
            let mut g = GraphBuilder::new("g");
            let one = f32_type(&[Some(1), Some(2), Some(1), Some(8)]);
            let q = g.input("q", one);
            let k = g.input("k", f32_type(&[Some(1), Some(2), Some(8), Some(5)]));
            let v = g.input("v", f32_type(&[Some(1), Some(2), Some(5), Some(8)]));
            let mask = g.input("mask", f32_type(&[Some(1), Some(1), Some(rows), Some(5)]));
            let scores = g.node("MatMul", &[q, k], []);
            let scores = g.node("Add", &[scores, mask], []);
            let weights = g.node("Softmax", &[scores], [("axis", Attr::from(-1))]);
            let y = g.node("MatMul", &[weights, v], []);
            g.output("y", y, f32_type(&[Some(1), Some(2), None, Some(8)]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            AttentionFusion.run(&mut graph)?;
            DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), nodes, "{rows}");
        }
        Ok(())
    }
}
