//! Removes nodes with outputs that nothing reads, and drops constants without readers.

use super::Pass;
use crate::error::Result;
use crate::graph::Graph;

#[derive(Debug)]
pub(crate) struct DeadCodeElimination;

impl Pass for DeadCodeElimination {
    fn name(&self) -> &'static str {
        "dead-code-elimination"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let mut wanted = vec![false; graph.values.len()];
        for (_, id) in &graph.outputs {
            wanted[id.0] = true;
        }
        let mut keep = vec![false; graph.nodes.len()];
        for (index, node) in graph.nodes.iter().enumerate().rev() {
            keep[index] = node.outputs.iter().flatten().any(|id| wanted[id.0]);
            if keep[index] {
                node.inputs.iter().flatten().for_each(|id| wanted[id.0] = true);
            }
        }
        let mut keep = keep.into_iter();
        graph.nodes.retain(|_| keep.next().unwrap_or(true));
        for (value, wanted) in graph.values.iter_mut().zip(wanted) {
            if !wanted && let Some(info) = &mut value.info {
                info.constant = None;
            }
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
    fn only_what_the_outputs_need_stays() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None]));
        let w = g.initializer("w", Tensor::scalar(1f32)?);
        let dead = g.node("Add", &[x, w], []);
        let _ = g.node("Relu", &[dead], []);
        let live = g.node("Relu", &[x], []);
        g.output("y", live, f32_type(&[None]));
        let mut graph = graph_of(g)?;
        DeadCodeElimination.run(&mut graph)?;
        assert_eq!(graph.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["Relu_2"]);
        assert!(graph.values.iter().all(|v| v.info.as_ref().is_none_or(|i| i.constant.is_none())));
        Ok(())
    }
}
