//! Common subexpressions: nodes with the same operator and inputs become one, and so do equal small
//! constants.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::Op;
use lgp_memory::{DType, Tensor};
use std::collections::HashMap;
use std::fmt::Write;

/// Larger constants are weights, which exporters do not repeat.
const CONSTANT_BYTES_MAX: usize = 4096;
/// Operators with a longer description stay as they are.
const ATTRIBUTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &'static str {
        "common-subexpressions"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let mut same: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        let mut constants: HashMap<(DType, Vec<usize>, Vec<u8>), ValueId> = HashMap::new();
        for (index, value) in graph.values.iter().enumerate() {
            let constant = value.info.as_ref().and_then(|info| info.constant.as_ref());
            if let Some(key) = constant.and_then(constant_key) {
                same[index] = *constants.entry(key).or_insert(ValueId(index));
            }
        }
        let kept: Vec<bool> = outputs(graph);
        let mut seen: HashMap<(String, Vec<Option<ValueId>>), usize> = HashMap::new();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            for input in graph.nodes[index].inputs.iter_mut().flatten() {
                *input = same[input.0];
            }
            let node = &graph.nodes[index];
            let Some(op) = description(&*node.op) else { continue };
            let key = (op, node.inputs.clone());
            let Some(&first) = seen.get(&key) else {
                seen.insert(key, index);
                continue;
            };
            // A node stays if it makes an output of the graph, or an output that the first node
            // leaves out.
            let earlier = &graph.nodes[first].outputs;
            let pairs = || {
                node.outputs
                    .iter()
                    .enumerate()
                    .filter_map(|(i, id)| id.map(|id| (id, earlier.get(i).copied().flatten())))
            };
            if pairs().any(|(id, first)| first.is_none() || kept[id.0]) {
                continue;
            }
            for (id, first) in pairs() {
                same[id.0] = first.unwrap_or(id);
            }
            *removed = true;
        }
        graph.remove(&removed);
        Ok(())
    }
}

/// The values that are outputs: each keeps its own node, so that callers get separate tensors.
fn outputs(graph: &Graph) -> Vec<bool> {
    let mut kept = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|(_, id)| kept[id.0] = true);
    kept
}

fn constant_key(tensor: &Tensor) -> Option<(DType, Vec<usize>, Vec<u8>)> {
    let bytes = tensor.as_bytes();
    (bytes.len() <= CONSTANT_BYTES_MAX)
        .then(|| (tensor.dtype(), tensor.shape().to_vec(), bytes.to_vec()))
}

/// The operator with its attributes; `None` if two runs may differ, or if it holds data.
fn description(op: &dyn Op) -> Option<String> {
    if !op.is_deterministic() || op.held_bytes() > 0 {
        return None;
    }
    let mut text = Capped(String::new());
    write!(text, "{} {op:?}", op.name()).ok()?;
    Some(text.0)
}

/// A string that ends at the length limit of descriptions.
struct Capped(String);

impl Write for Capped {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        if self.0.len() + s.len() > ATTRIBUTES_MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};

    #[test]
    fn the_same_of_the_same_is_computed_once() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None]));
        let c = g.initializer("c", Tensor::scalar(2f32)?);
        let d = g.initializer("d", Tensor::scalar(2f32)?);
        let a = g.node("Add", &[x, c], []);
        let b = g.node("Add", &[x, d], []);
        let e = g.node("LeakyRelu", &[a], [("alpha", 0.1f32.into())]);
        let f = g.node("LeakyRelu", &[b], [("alpha", 0.2f32.into())]);
        let z = g.node("Mul", &[e, f], []);
        let also = g.node("Mul", &[e, f], []);
        g.output("z", z, f32_type(&[None]));
        g.output("also", also, f32_type(&[None]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        CommonSubexpressions.run(&mut graph)?;
        let ops: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(ops, ["Add", "LeakyRelu", "LeakyRelu", "Mul", "Mul"]);
        assert_eq!(graph.nodes[2].inputs, graph.nodes[1].inputs);
        Ok(())
    }
}
