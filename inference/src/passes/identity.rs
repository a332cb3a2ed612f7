//! Removes nodes that pass their input on: `Identity`, what `Dropout` became, casts to the dtype
//! that is already there.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{Cast, Identity};

#[derive(Debug)]
pub(crate) struct IdentityElimination;

impl Pass for IdentityElimination {
    fn name(&self) -> &'static str {
        "identity-elimination"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        // What each value is another name for; nodes are in order, so sources are resolved first.
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
        let mut removed = removed.into_iter();
        graph.nodes.retain(|_| !removed.next().unwrap_or(false));
        Ok(())
    }
}

/// Input and output of a node that does nothing.
fn passes_on(graph: &Graph, index: usize) -> Option<(ValueId, ValueId)> {
    let node = &graph.nodes[index];
    let (Some(&Some(from)), [Some(to)]) = (node.inputs.first(), node.outputs.as_slice()) else {
        return None;
    };
    let idle = graph.op::<Identity>(index).is_some()
        || graph
            .op::<Cast>(index)
            .is_some_and(|cast| graph.info(from).is_some_and(|info| info.ty.dtype == cast.to));
    idle.then_some((from, *to))
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
