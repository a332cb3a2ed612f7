//! Leaves the weights of products as they are stored, in fewer bits than they are multiplied in, for
//! devices whose kernels widen them on their way from memory.

use super::Pass;
use super::pattern::{Pattern, Rewrite, rewrite};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{Cast, DequantizeLinear, MatMul, MatMulStored, UnpackBits};
use lgp_memory::DType;
use std::sync::Arc;

/// To be run before weights are folded to floats.
#[derive(Debug)]
pub(crate) struct StoredWeights;

impl Pass for StoredWeights {
    fn name(&self) -> &'static str {
        "stored-weights"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        (0..graph.nodes.len()).try_for_each(|index| graph.infer_node(index))?;
        rewrite(graph, |pattern, node| {
            pattern.graph.op::<MatMul>(node)?;
            let [Some(a), Some(b)] = pattern.graph.nodes[node].inputs[..] else { return None };
            let (op, mut stored) = stored(pattern, b)?;
            let known = stored.iter().flatten().all(|id| pattern.graph.constant(*id).is_some());
            stored.insert(0, Some(a));
            let is_f32 = pattern.graph.info(a)?.ty.dtype == DType::F32;
            let given: Vec<_> =
                stored.iter().map(|id| id.and_then(|id| pattern.graph.info(id))).collect();
            // What the operator does not take stays what it is.
            let fits = lgp_compute::Op::infer(&op, &given).is_ok();
            (known && is_f32 && fits).then(|| Rewrite { node, op: Arc::new(op), inputs: stored })
        })
    }
}

/// The product that takes the weight `id` as it is stored, and the weight's inputs to that.
fn stored(pattern: &Pattern<'_>, id: ValueId) -> Option<(MatMulStored, Vec<Option<ValueId>>)> {
    if let Some((bits, node)) = pattern.made_by::<UnpackBits>(id) {
        return Some((MatMulStored { bits: Some(bits.clone()) }, node.inputs.clone()));
    }
    let plain = MatMulStored { bits: None };
    if let Some((cast, node)) = pattern.made_by::<Cast>(id) {
        return (cast.to == DType::F32).then(|| (plain, node.inputs.clone()));
    }
    let (op, node) = pattern.made_by::<DequantizeLinear>(id)?;
    let scale = pattern.graph.info(node.inputs.get(1).copied().flatten()?)?;
    let one = scale.ty.concrete_shape()?.elements().ok()? == 1;
    let columns = matches!(op.axis, 1 | -1) && op.block == 0 && pattern.rank(id) == Some(2);
    let f32 = op.to.is_none_or(|to| to == DType::F32) && scale.ty.dtype == DType::F32;
    (f32 && (one || columns)).then(|| (plain, node.inputs.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};
    use lgp_memory::Tensor;

    /// What a product with the weight `w`, dequantised by a scale of `scales` elements along `axis`,
    /// becomes.
    fn becomes(w: Tensor, scales: usize, axis: i64) -> Result<&'static str> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let half = w.dtype() == DType::F16;
        let w = g.initializer("w", w);
        let scale = vec![0.5f32; scales];
        let scale = match scales {
            1 => g.initializer("scale", Tensor::scalar(0.5f32)?),
            _ => g.initializer("scale", Tensor::from_slice([scales], &scale)?),
        };
        let w = match half {
            true => g.node("Cast", &[w], [("to", 1.into())]),
            false => g.node("DequantizeLinear", &[w, scale], [("axis", axis.into())]),
        };
        let y = g.node("MatMul", &[x, w], []);
        g.output("y", y, f32_type(&[None, None]));
        let mut graph = graph_of(g)?;
        StoredWeights.run(&mut graph)?;
        Ok(graph.nodes.last().map_or("", |node| node.op.name()))
    }

    #[test]
    fn weights_stay_as_they_are_where_scales_belong_to_columns() -> Result<()> {
        for (dtype, scales, axis, expected) in [
            (DType::I8, 3, 1, "MatMulStored"),
            (DType::I8, 4, 0, "MatMul"),
            (DType::U8, 1, 1, "MatMulStored"),
            (DType::F16, 1, 1, "MatMulStored"),
            (DType::I16, 1, 1, "MatMul"),
        ] {
            assert_eq!(becomes(Tensor::zeros(dtype, [4, 3])?, scales, axis)?, expected, "{dtype}");
        }
        Ok(())
    }
}
