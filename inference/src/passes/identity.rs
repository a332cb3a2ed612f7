//! Removes nodes that pass on their input: `Identity`, the remains of `Dropout`, casts to the same
//! dtype, reshapes to the same shape.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_memory::Dim;

#[derive(Debug)]
pub(crate) struct IdentityElimination;

impl Pass for IdentityElimination {
    fn name(&self) -> &'static str {
        "identity-elimination"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        // The value that each value is another name for. Nodes are in order, so sources come first.
        let mut same: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            for input in graph.nodes[index].inputs.iter_mut().flatten() {
                *input = same[input.0];
            }
            if let Some((from, to)) = passes_on(graph, index) {
                same[to.0] = from;
                *removed = true;
            }
        }
        for (_, output) in &mut graph.outputs {
            *output = same[output.0];
        }
        graph.remove(&removed);
        Ok(())
    }
}

/// Input and output of a node that changes nothing.
fn passes_on(graph: &Graph, index: usize) -> Option<(ValueId, ValueId)> {
    let node = &graph.nodes[index];
    let (Some(&Some(from)), [Some(to)]) = (node.inputs.first(), node.outputs.as_slice()) else {
        return None;
    };
    let x = graph.info(from);
    let casts = node.op.casts_to().is_some_and(|to| x.is_some_and(|x| x.ty.dtype == to));
    (casts || keeps(graph, node)).then_some((from, *to))
}

/// Whether a node leaves each element of its first input in its place.
fn keeps(graph: &Graph, node: &Node) -> bool {
    let given = graph.infos(node);
    let Some(Some(x)) = given.first() else { return false };
    let Some(rank) = x.rank().filter(|_| node.op.moves()) else { return false };
    let Ok(outputs) = node.op.infer(&given) else { return false };
    let [out] = outputs.as_slice() else { return false };
    let order = node.op.axes(&given, &outputs).permutation(rank);
    // An operator that does not pass on its input's memory may repeat elements along an axis of 1.
    let same = node.op.passes_memory_on()
        || (0..rank).all(|axis| x.dim(axis) == out.dim(axis) && x.dim(axis) != Some(&Dim::Unknown));
    out.rank() == Some(rank) && same && order.is_some_and(|order| order.into_iter().eq(0..rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};

    #[test]
    fn readers_read_the_source() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None]));
        let a = g.node("Identity", &[x], []);
        let b = g.node("Dropout", &[a], []);
        let c = g.node("Cast", &[b], [("to", 1.into())]);
        let d = g.node("Relu", &[c], []);
        let e = g.node("Identity", &[d], []);
        g.output("y", e, f32_type(&[None]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        IdentityElimination.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 1);
        assert_eq!(graph.nodes[0].inputs, [Some(graph.inputs[0])]);
        assert_eq!(graph.nodes[0].outputs, [Some(graph.outputs[0].1)]);
        assert_eq!(graph.outputs[0].0, "y");
        Ok(())
    }

    #[test]
    fn an_output_may_be_an_input() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None]));
        g.output("y", x, f32_type(&[None]));
        let mut graph = graph_of(g)?;
        IdentityElimination.run(&mut graph)?;
        assert!(graph.nodes.is_empty());
        assert_eq!(graph.outputs[0].1, graph.inputs[0]);
        Ok(())
    }
}
