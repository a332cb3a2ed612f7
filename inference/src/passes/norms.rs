//! Recognises layer norm and RMS norm that are written out with means and a square root.

use super::Pass;
use super::pattern::{Pattern, Rewrite, rewrite};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{BinaryKind, LayerNorm, Reduce, ReduceKind, RmsNorm, UnaryKind};
use lgp_memory::Dim;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct NormFusion;

impl Pass for NormFusion {
    fn name(&self) -> &'static str {
        "norm-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        // Layer norms come first: each contains an RMS norm of the difference.
        rewrite(graph, |pattern, node| {
            let out = pattern.output(node)?;
            let orders = pattern.either(out, BinaryKind::Add)?;
            orders.into_iter().find_map(|[product, bias]| {
                let (centred, scale, epsilon) = scaled_root(pattern, product)?;
                let [x, mean] = pattern.binary(centred, BinaryKind::Sub)?;
                let whole = mean_of(pattern, mean)? == x && pattern.alike(x, out);
                (whole && fits_last(pattern, bias, x)).then(|| Rewrite {
                    node,
                    op: Arc::new(LayerNorm { axis: -1, epsilon }),
                    inputs: vec![Some(x), Some(scale), Some(bias)],
                })
            })
        })?;
        rewrite(graph, |pattern, node| {
            let out = pattern.output(node)?;
            let (x, scale, epsilon) = scaled_root(pattern, out)?;
            pattern.alike(x, out).then(|| Rewrite {
                node,
                op: Arc::new(RmsNorm { axis: -1, epsilon }),
                inputs: vec![Some(x), Some(scale)],
            })
        })
    }
}

/// `scale · x / √(mean(x²) + ε)` as x, scale, a vector along the last axis, and ε.
fn scaled_root(pattern: &Pattern<'_>, id: ValueId) -> Option<(ValueId, ValueId, f32)> {
    let orders = pattern.either(id, BinaryKind::Mul)?;
    orders.into_iter().find_map(|[normal, scale]| {
        let (x, epsilon) = over_root(pattern, normal)?;
        fits_last(pattern, scale, x).then_some((x, scale, epsilon))
    })
}

/// Whether a vector surely has one element, or one for each position of the last axis of `x`: a
/// longer vector would widen an axis of 1.
fn fits_last(pattern: &Pattern<'_>, vector: ValueId, x: ValueId) -> bool {
    let dims = |id| pattern.graph.info(id)?.ty.shape.as_ref().map(|shape| shape.0.as_slice());
    match (dims(vector), dims(x)) {
        (Some([len]), Some([.., last])) => {
            len.known() == Some(1) || (len == last && *len != Dim::Unknown)
        }
        _ => false,
    }
}

/// `x / √(mean(x²) + ε)`, also as a product with the reciprocal.
fn over_root(pattern: &Pattern<'_>, id: ValueId) -> Option<(ValueId, f32)> {
    if let Some([x, root]) = pattern.binary(id, BinaryKind::Div) {
        return root_of(pattern, x, root).map(|epsilon| (x, epsilon));
    }
    let orders = pattern.either(id, BinaryKind::Mul)?;
    orders.into_iter().find_map(|[x, inverse]| {
        let root = pattern.unary(inverse, UnaryKind::Reciprocal).or_else(|| {
            let [one, root] = pattern.binary(inverse, BinaryKind::Div)?;
            pattern.is(one, 1.).then_some(root)
        })?;
        root_of(pattern, x, root).map(|epsilon| (x, epsilon))
    })
}

/// ε, if a value is `√(mean(x²) + ε)`.
fn root_of(pattern: &Pattern<'_>, x: ValueId, id: ValueId) -> Option<f32> {
    let sum = pattern.unary(id, UnaryKind::Sqrt)?;
    let (mean, epsilon) = pattern.with_scalar(sum, BinaryKind::Add)?;
    let square = mean_of(pattern, mean)?;
    let squared = match pattern.binary(square, BinaryKind::Pow) {
        Some([base, two]) => base == x && pattern.is(two, 2.),
        None => pattern.binary(square, BinaryKind::Mul)? == [x, x],
    };
    squared.then_some(epsilon)
}

/// The value whose mean over the last axis this is, if the axis stays.
fn mean_of(pattern: &Pattern<'_>, id: ValueId) -> Option<ValueId> {
    let (reduce, node) = pattern.made_by::<Reduce>(id)?;
    let x = node.inputs.first().copied().flatten()?;
    let axes = match node.inputs.get(1) {
        Some(Some(axes)) => pattern.graph.constant(*axes)?.as_slice::<i64>().ok()?.to_vec(),
        _ => reduce.axes.clone()?,
    };
    let last = i64::try_from(pattern.rank(x)?).ok()?.checked_sub(1)?;
    let is_last = matches!(axes.as_slice(), [axis] if *axis == -1 || *axis == last);
    (reduce.kind == ReduceKind::Mean && reduce.keep_dims && is_last).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{Attr, GraphBuilder};
    use lgp_memory::Tensor;

    /// The name of the last node after the pass over a written-out norm.
    fn last(centre: bool, axis: i64, reciprocal: bool) -> Result<&'static str> {
        let mut g = GraphBuilder::new("g").with_opset(13);
        let mut x = g.input("x", f32_type(&[None, Some(3), Some(4)]));
        let axes = |axis| [("axes", Attr::from(vec![axis]))];
        let [two, epsilon, one] = [("two", 2f32), ("epsilon", 1e-6), ("one", 1.)]
            .map(|(name, x)| g.initializer(name, Tensor::scalar(x).unwrap()));
        let scale = g.initializer("scale", Tensor::from_slice([4], &[1f32, 2., 3., 4.])?);
        let bias = g.initializer("bias", Tensor::from_slice([4], &[1f32; 4])?);
        if centre {
            let mean = g.node("ReduceMean", &[x], axes(axis));
            x = g.node("Sub", &[x, mean], []);
        }
        let square = g.node("Pow", &[x, two], []);
        let variance = g.node("ReduceMean", &[square], axes(axis));
        let sum = g.node("Add", &[variance, epsilon], []);
        let root = g.node("Sqrt", &[sum], []);
        let normal = if reciprocal {
            let inverse = g.node("Div", &[one, root], []);
            g.node("Mul", &[x, inverse], [])
        } else {
            g.node("Div", &[x, root], [])
        };
        let mut y = g.node("Mul", &[normal, scale], []);
        if centre {
            y = g.node("Add", &[y, bias], []);
        }
        g.output("y", y, f32_type(&[None, Some(3), Some(4)]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        NormFusion.run(&mut graph)?;
        Ok(graph.nodes.last().map_or("", |n| n.op.name()))
    }

    #[test]
    fn norms_over_the_last_axis_are_recognised() -> Result<()> {
        for axis in [-1, 2] {
            assert_eq!(last(true, axis, false)?, "LayerNormalization");
            assert_eq!(last(false, axis, false)?, "RMSNormalization");
            assert_eq!(last(false, axis, true)?, "RMSNormalization");
        }
        assert_eq!(last(true, 1, false)?, "Add");
        assert_eq!(last(false, 1, false)?, "Mul");
        Ok(())
    }

    #[test]
    fn a_scale_that_widens_the_last_axis_stays() -> Result<()> {
        for (last, left) in [(Some(4), "RMSNormalization"), (Some(1), "Mul"), (None, "Mul")] {
            let mut g = GraphBuilder::new("g").with_opset(13);
            let x = g.input("x", f32_type(&[None, last]));
            let epsilon = g.initializer("epsilon", Tensor::scalar(1e-6f32)?);
            let scale = g.initializer("scale", Tensor::from_slice([4], &[1f32, 2., 3., 4.])?);
            let square = g.node("Mul", &[x, x], []);
            let mean = g.node("ReduceMean", &[square], [("axes", Attr::from(vec![-1i64]))]);
            let sum = g.node("Add", &[mean, epsilon], []);
            let root = g.node("Sqrt", &[sum], []);
            let normal = g.node("Div", &[x, root], []);
            let y = g.node("Mul", &[normal, scale], []);
            g.output("y", y, f32_type(&[None, None]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            NormFusion.run(&mut graph)?;
            assert_eq!(graph.nodes.last().map(|n| n.op.name()), Some(left), "{last:?}");
        }
        Ok(())
    }
}
