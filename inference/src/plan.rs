//! When each value is last read, so that the next value can use its memory, and where each value
//! lies in memory.

mod cache;
mod memory;

pub(crate) use cache::{PlanCache, Signature};
pub(crate) use memory::MemoryPlan;
pub use memory::{MemoryReport, PlacedTensor, TensorBytes};

use crate::graph::{Graph, ValueId};

/// For each node, the values that nothing reads after it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) frees: Vec<Vec<ValueId>>,
}

impl Plan {
    pub(crate) fn new(graph: &Graph) -> Self {
        let mut frees = vec![Vec::new(); graph.nodes.len()];
        let mut settled = vec![true; graph.values.len()];
        for node in &graph.nodes {
            node.outputs.iter().flatten().for_each(|id| settled[id.0] = false);
        }
        for (_, id) in &graph.outputs {
            settled[id.0] = true;
        }
        for (index, node) in graph.nodes.iter().enumerate().rev() {
            for id in node.inputs.iter().chain(&node.outputs).flatten() {
                if !std::mem::replace(&mut settled[id.0], true) {
                    frees[index].push(*id);
                }
            }
        }
        Self { frees }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphBuilder, Result};
    use lgp_memory::{DType, TensorType};

    #[test]
    fn values_go_after_their_last_reader_and_outputs_stay() -> Result<()> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone());
        let a = g.node("Relu", &[x], []);
        let b = g.node("Relu", &[a], []);
        let c = g.node("Add", &[a, b], []);
        g.output("b", b, ty.clone());
        g.output("c", c, ty);
        let graph = crate::onnx::lower(&g.finish()?, crate::SessionOptions::default())?;
        let plan = Plan::new(&graph);
        let a = graph.nodes[0].outputs[0].unwrap();
        assert_eq!(plan.frees, [vec![], vec![], vec![a]]);
        Ok(())
    }
}
