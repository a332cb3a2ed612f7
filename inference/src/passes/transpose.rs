//! Joins transposes that follow each other, and drops pairs that undo each other.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::Transpose;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TransposeJoining;

impl Pass for TransposeJoining {
    fn name(&self) -> &'static str {
        "transpose-joining"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let producers = graph.producers();
        // The value that each value is another name for. Nodes are in order, so sources come first.
        let mut same: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            for input in graph.nodes[index].inputs.iter_mut().flatten() {
                *input = same[input.0];
            }
            let Some((perm, from, to)) = parts(graph, index) else { continue };
            let before = producers[from.0].and_then(|p| parts(graph, p));
            let (perm, from) = match before {
                Some((first, source, _)) if first.len() == perm.len() => {
                    (perm.iter().map(|&axis| first[axis]).collect(), source)
                }
                _ => (perm, from),
            };
            if perm.iter().copied().eq(0..perm.len()) {
                same[to.0] = from;
                *removed = true;
            } else if before_is_new(graph, index, from) {
                graph.nodes[index].op = Arc::new(Transpose { perm: Some(perm) });
                graph.nodes[index].inputs = vec![Some(from)];
            }
        }
        for (_, output) in &mut graph.outputs {
            *output = same[output.0];
        }
        graph.remove(&removed);
        Ok(())
    }
}

/// Whether the node reads another value than `from`.
fn before_is_new(graph: &Graph, index: usize, from: ValueId) -> bool {
    graph.nodes[index].inputs.first() != Some(&Some(from))
}

/// Permutation, input and output of a transpose with known axes.
fn parts(graph: &Graph, index: usize) -> Option<(Vec<usize>, ValueId, ValueId)> {
    let node = &graph.nodes[index];
    let ([Some(from)], [Some(to)]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
        return None;
    };
    let given = graph.infos(node);
    let rank = given.first().copied().flatten()?.rank().filter(|_| node.op.moves())?;
    let outputs = node.op.infer(&given).ok()?;
    let perm = node.op.axes(&given, &outputs).permutation(rank)?;
    (outputs.first()?.rank() == Some(rank)).then_some((perm, *from, *to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{Attr, GraphBuilder};

    #[test]
    fn chains_become_one_and_opposites_go() -> Result<()> {
        for (second, nodes, perm) in [
            ([0i64, 3, 1, 2], 1, None),
            ([0, 2, 3, 1], 2, Some(vec![0, 3, 1, 2])),
            ([3, 2, 1, 0], 2, Some(vec![1, 3, 2, 0])),
        ] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type(&[None, None, None, None]));
            let a = g.node("Transpose", &[x], [("perm", Attr::from([0, 2, 3, 1]))]);
            let b = g.node("Transpose", &[a], [("perm", Attr::from(second))]);
            let c = g.node("Relu", &[b], []);
            g.output("y", c, f32_type(&[None, None, None, None]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            TransposeJoining.run(&mut graph)?;
            super::super::dead_code::DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), nodes, "{second:?}");
            let first = parts(&graph, 0).map(|(perm, _, _)| perm);
            assert_eq!(first, perm, "{second:?}");
            assert_eq!(graph.nodes[0].inputs, [Some(graph.inputs[0])]);
        }
        Ok(())
    }

    #[test]
    fn an_output_may_be_what_came_in() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, None]));
        let a = g.node("Transpose", &[x], [("perm", Attr::from([1, 0]))]);
        let b = g.node("Transpose", &[a], [("perm", Attr::from([1, 0]))]);
        g.output("y", b, f32_type(&[None, None]));
        let mut graph = graph_of(g)?;
        TransposeJoining.run(&mut graph)?;
        assert_eq!(graph.outputs[0].1, graph.inputs[0]);
        Ok(())
    }
}
