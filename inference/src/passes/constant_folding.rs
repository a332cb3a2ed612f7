//! Infers every type, and computes the values that do not depend on the model's inputs.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node};
use lgp_compute::rewrite::Decoder;
use lgp_compute::{Context, launch};
use lgp_memory::{DType, Shape, TensorView};

/// Folded tensors may take this much and a few times the weights. A graph can ask for any size with
/// a few nodes; larger values are computed in a run.
const FREE_BYTES: usize = 64 << 20;
const TIMES_THE_WEIGHTS: usize = 4;

#[derive(Debug)]
pub(crate) struct ConstantFolding {
    /// Keeps quantised weights as bytes, for the passes whose kernels read them.
    pub(crate) keep_bytes: bool,
}

impl Pass for ConstantFolding {
    fn name(&self) -> &'static str {
        "constant-folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let weights: usize = graph
            .values
            .iter()
            .filter_map(|v| v.info.as_ref()?.constant.as_ref())
            .map(|t| t.as_bytes().len())
            .sum();
        let mut budget = weights.saturating_mul(TIMES_THE_WEIGHTS).saturating_add(FREE_BYTES);
        let ctx = Context::new(1).with_isa(graph.options.isa);
        let mut folded = vec![false; graph.nodes.len()];
        for (index, folded) in folded.iter_mut().enumerate() {
            graph.infer_node(index)?;
            *folded = !(self.keep_bytes && keeps_weight(graph, index))
                && fold(graph, index, &ctx, &mut budget)?;
        }
        graph.remove(&folded);
        Ok(())
    }
}

/// Makes the node's outputs constants, if that is possible and cheap.
fn fold(graph: &mut Graph, index: usize, ctx: &Context, budget: &mut usize) -> Result<bool> {
    let node = &graph.nodes[index];
    // Inference knows the outputs of some nodes without their inputs, such as `Shape`.
    if node.outputs.iter().flatten().all(|&id| graph.constant(id).is_some()) {
        return Ok(true);
    }
    if node.op.takes_data() {
        return Ok(false);
    }
    let Some(bytes) = output_bytes(graph, node).filter(|b| b <= budget) else {
        return Ok(false);
    };
    let mut inputs: Vec<Option<TensorView<'_>>> = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        match input.map(|id| graph.constant(id)) {
            None => inputs.push(None),
            Some(Some(tensor)) => inputs.push(Some(tensor.view())),
            Some(None) => return Ok(false),
        }
    }
    // A node that fails stays, so that a run reports the error.
    let Ok(outputs) = launch(&*node.op, ctx, &inputs) else {
        return Ok(false);
    };
    let ids = node.outputs.clone();
    if outputs.len() < ids.len() {
        return Ok(false);
    }
    *budget -= bytes;
    for (id, tensor) in ids.into_iter().zip(outputs) {
        if let Some(id) = id {
            graph.set_constant(id, tensor);
        }
    }
    Ok(true)
}

/// Whether the node decodes a weight of bytes, or of few bits, which kernels read as it is.
fn keeps_weight(graph: &Graph, index: usize) -> bool {
    let weight = graph.nodes[index].inputs.first().copied().flatten();
    let decoder = graph.nodes[index].op.decodes();
    matches!(decoder, Some(Decoder::Scales { .. } | Decoder::Unpacks(_)))
        && weight
            .and_then(|id| graph.constant(id))
            .is_some_and(|w| matches!(w.dtype(), DType::I8 | DType::U8) && w.shape().rank() > 1)
}

/// Bytes of all outputs, if their shapes are known.
fn output_bytes(graph: &Graph, node: &Node) -> Option<usize> {
    node.outputs.iter().flatten().try_fold(0usize, |sum, &id| {
        let ty = &graph.info(id)?.ty;
        let shape: Shape = ty.concrete_shape()?;
        sum.checked_add(shape.byte_len(ty.dtype).ok()?)
    })
}

/// The constant of output 0.
#[cfg(test)]
fn first_output(graph: &Graph) -> Option<&lgp_memory::Tensor> {
    graph.constant(graph.outputs[0].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{GraphBuilder, Result};
    use lgp_memory::Tensor;

    #[test]
    fn chains_of_constants_become_one() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let a = g.initializer("a", Tensor::from_slice([2], &[1f32, 2.])?);
        let b = g.initializer("b", Tensor::from_slice([2], &[3f32, 4.])?);
        let c = g.node("Add", &[a, b], []);
        let d = g.node("Mul", &[c, c], []);
        g.output("y", d, f32_type(&[Some(2)]));
        let mut graph = graph_of(g)?;
        ConstantFolding { keep_bytes: false }.run(&mut graph)?;
        assert!(graph.nodes.is_empty());
        let y = first_output(&graph).expect("y is constant");
        assert_eq!(y.as_slice::<f32>()?, [16., 36.]);
        Ok(())
    }

    #[test]
    fn known_dimensions_are_constants_though_the_tensor_is_not() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(3)]));
        let shape = g.node("Shape", &[x], [("start", 1.into())]);
        g.output("y", shape, crate::passes::tests::type_of(lgp_memory::DType::I64, &[Some(1)]));
        let mut graph = graph_of(g)?;
        ConstantFolding { keep_bytes: false }.run(&mut graph)?;
        assert!(graph.nodes.is_empty());
        assert_eq!(first_output(&graph).expect("y is constant").as_slice::<i64>()?, [3]);
        Ok(())
    }

    #[test]
    fn what_is_too_large_is_left_for_the_run() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let shape = g.initializer("shape", Tensor::from_slice([2], &[1i64 << 20, 1 << 20])?);
        let y = g.node("ConstantOfShape", &[shape], []);
        g.output("y", y, f32_type(&[None, None]));
        let mut graph = graph_of(g)?;
        ConstantFolding { keep_bytes: false }.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 1);
        Ok(())
    }
}
