//! Products of floats that are quantised in the graph, as ONNX Runtime's quantiser writes them:
//! `DynamicQuantizeLinear`, `MatMulInteger`, a cast and a product of both scales become one
//! operator.

use super::Pass;
use super::pattern::Pattern;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::Activation;
use lgp_compute::ops::{
    BinaryKind, Cast, DynamicQuantizeLinear, MatMulInteger, QKind, QMatMul, QMatMulParts,
};
use lgp_memory::{DType, Tensor};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct DynamicProducts;

impl Pass for DynamicProducts {
    fn name(&self) -> &'static str {
        "dynamic-products"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let mut uses = graph.uses();
        for index in 0..graph.nodes.len() {
            let Some(found) = found(&Pattern::new(graph), index) else { continue };
            let parts = QMatMulParts {
                weight: &found.weight.view(),
                transposed: false,
                weight_scale: &found.scale,
                weight_zero: &found.zero,
                kind: QKind::Dynamic { bias: None, activation: Activation::None },
            };
            let Ok(op) = QMatMul::new(parts) else { continue };
            // If nothing else reads the pattern's values, the stored weight is dropped too.
            if found.inner.iter().all(|id| uses[id.0] == 1) {
                graph.release(found.stored, &mut uses);
            }
            let node = &mut graph.nodes[index];
            (node.op, node.inputs) = (Arc::new(op), found.x.map(Some).to_vec());
        }
        Ok(())
    }
}

/// The parts of a pattern that ends in a product with both scales.
struct Found {
    /// The bytes, their scale and their zero point.
    x: [ValueId; 3],
    weight: Tensor,
    scale: Vec<f32>,
    zero: Vec<i32>,
    /// The value of the stored weight.
    stored: ValueId,
    /// The values inside the pattern.
    inner: [ValueId; 3],
}

fn found(pattern: &Pattern<'_>, index: usize) -> Option<Found> {
    let out = pattern.output(index)?;
    let orders = pattern.either(out, BinaryKind::Mul)?;
    orders.into_iter().find_map(|[sums, scales]| {
        let (_, cast) = pattern.made_by::<Cast>(sums)?;
        let product_id = cast.inputs.first().copied().flatten()?;
        let (_, product) = pattern.made_by::<MatMulInteger>(product_id)?;
        let input = |i: usize| product.inputs.get(i).copied().flatten();
        let (_, quantize) = pattern.made_by::<DynamicQuantizeLinear>(input(0)?)?;
        let own = |i: usize| quantize.outputs.get(i).copied().flatten();
        if input(2) != own(2) {
            return None;
        }
        let x = [own(0)?, own(1)?, own(2)?];
        let factors = pattern.either(scales, BinaryKind::Mul)?;
        let [_, weight_scale] = factors.into_iter().find(|[dynamic, _]| *dynamic == x[1])?;
        let weight_scale = pattern.graph.constant(weight_scale)?;
        let (_, outer) = weight_scale.shape().split_last().unwrap_or((&1, &[]));
        // A scale with more dimensions than the sums would add dimensions to the product.
        let fits = Some(weight_scale.shape().rank()) <= pattern.rank(product_id);
        if !fits || outer.iter().any(|&d| d != 1) {
            return None;
        }
        let scale = weight_scale.as_slice::<f32>().ok()?.to_vec();
        let zero = match input(3) {
            None => vec![0],
            Some(id) => zeros(pattern.graph.constant(id)?)?,
        };
        // One zero point serves all columns.
        let zero = if zero.len() == 1 { vec![zero[0]; scale.len()] } else { zero };
        let stored = input(1)?;
        let weight = pattern.graph.constant(stored)?.clone();
        Some(Found { x, weight, scale, zero, stored, inner: [stored, product_id, sums] })
    })
}

fn zeros(zero: &Tensor) -> Option<Vec<i32>> {
    Some(match zero.dtype() {
        DType::I8 => zero.as_slice::<i8>().ok()?.iter().map(|&z| z.into()).collect(),
        _ => zero.as_slice::<u8>().ok()?.iter().map(|&z| z.into()).collect(),
    })
}
