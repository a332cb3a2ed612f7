//! Multiplies only with what is not zero in the weights of products, where that is little, for devices
//! with kernels for it.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node};
use lgp_compute::ops::{MatMul, MatMulSparse};
use lgp_memory::DType;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct SparseWeights;

impl Pass for SparseWeights {
    fn name(&self) -> &'static str {
        "sparse-weights"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let mut uses = graph.uses();
        for index in 0..graph.nodes.len() {
            if graph.op::<MatMul>(index).is_none() {
                continue;
            }
            let [Some(a), Some(b)] = graph.nodes[index].inputs[..] else { continue };
            let weight = graph.constant(b).filter(|w| w.dtype() == DType::F32);
            let Some(weight) = weight.filter(|w| w.shape().rank() == 2) else { continue };
            let packed = MatMulSparse::pack(&weight.view())
                .map_err(|e| crate::graph::node_error(&graph.nodes[index], e))?;
            let Some((op, parts)) = packed else { continue };
            let name = graph.values[b.0].name.clone();
            let parts = parts.into_iter().zip(["starts", "rows", "values"]);
            let mut inputs = vec![Some(a)];
            for (tensor, part) in parts {
                inputs.push(Some(graph.add_constant(format!("{name}.{part}"), tensor)));
            }
            let node = &mut graph.nodes[index];
            *node = Node { op: Arc::new(op), inputs, ..node.clone() };
            uses.resize(graph.values.len(), 1);
            graph.release(b, &mut uses);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};
    use lgp_memory::Tensor;

    #[test]
    fn weights_of_few_elements_are_packed() -> Result<()> {
        for (apart, expected) in [(20, "MatMulSparse"), (3, "MatMul")] {
            let data: Vec<f32> =
                (0..40 * 30).map(|i| f32::from(u8::from(i % apart == 0))).collect();
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type(&[None, Some(40)]));
            let w = g.initializer("w", Tensor::from_slice([40, 30], &data)?);
            let y = g.node("MatMul", &[x, w], []);
            g.output("y", y, f32_type(&[None, Some(30)]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            SparseWeights.run(&mut graph)?;
            assert_eq!(graph.nodes[0].op.name(), expected);
            graph.infer()?;
        }
        Ok(())
    }
}
