//! Packs constants for the kernels, once, when the model is loaded.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::options::Precision;
use lgp_compute::Op;
use lgp_compute::rewrite::{Hints, Operand};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Preparation {
    /// Whether the constants are for the kernels of devices, not of the CPU.
    pub(crate) on_device: bool,
}

/// An operator with constants that were prepared for it, and the sources of its inputs.
type Prepared = (Arc<dyn Op>, Vec<Source>);

#[derive(Debug, Clone, Copy)]
enum Source {
    Absent,
    Input(usize),
    Value(ValueId),
}

impl Pass for Preparation {
    fn name(&self) -> &'static str {
        "preparation"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let options = graph.options;
        let bf16 = options.precision == Precision::Fast;
        let hints = Hints { isa: options.isa, bf16, on_device: self.on_device };
        let mut uses = graph.uses();
        // A constant that several nodes share is prepared once.
        let mut known: HashMap<(String, Vec<Option<ValueId>>), Prepared> = HashMap::new();
        let mut made: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        for index in 0..graph.nodes.len() {
            let node = graph.nodes[index].clone();
            let constant = |id: &Option<ValueId>| id.filter(|id| graph.constant(*id).is_some());
            let constants: Vec<Option<ValueId>> = node.inputs.iter().map(constant).collect();
            if constants.iter().all(Option::is_none) || node.op.held_bytes() > 0 {
                continue;
            }
            let key = (format!("{:?}", node.op), constants.clone());
            if !known.contains_key(&key) {
                let step = node.op.prepared(&graph.infos(&node), hints);
                let Some(step) = step.map_err(|e| node_error(&node, e))? else { continue };
                let op = step.op.unwrap_or_else(|| Arc::clone(&node.op));
                let sources = sources(graph, &node, step.inputs, &mut made);
                known.insert(key.clone(), (op, sources));
            }
            let Some((op, sources)) = known.get(&key) else { continue };
            let inputs = sources.iter().map(|source| match *source {
                Source::Absent => None,
                Source::Input(i) => node.inputs.get(i).copied().flatten(),
                Source::Value(id) => Some(id),
            });
            let inputs: Vec<Option<ValueId>> = inputs.collect();
            uses.resize(graph.values.len(), 1);
            for id in constants.into_iter().flatten().filter(|id| !inputs.contains(&Some(*id))) {
                graph.release(id, &mut uses);
            }
            graph.nodes[index] = Node { op: Arc::clone(op), inputs, ..node };
        }
        Ok(())
    }
}

/// The sources of an operator's inputs. `made` has the constants that operators made of each value:
/// equal ones are stored once.
fn sources(
    graph: &mut Graph,
    node: &Node,
    operands: Vec<Operand>,
    made: &mut HashMap<ValueId, Vec<ValueId>>,
) -> Vec<Source> {
    let mut sources = Vec::with_capacity(operands.len());
    for (i, operand) in operands.into_iter().enumerate() {
        sources.push(match operand {
            Operand::Absent | Operand::Made(_) => Source::Absent,
            Operand::Input(i) => Source::Input(i),
            Operand::Constant(tensor) => {
                let of = node.inputs.get(i).copied().flatten();
                let others = of.and_then(|id| made.get(&id)).map_or(&[][..], Vec::as_slice);
                let equal = others.iter().find(|id| graph.constant(**id) == Some(&tensor));
                Source::Value(match equal {
                    Some(id) => *id,
                    None => {
                        let name = of.map_or(&node.name, |id| &graph.values[id.0].name);
                        let id = graph.add_constant(format!("{name}.prepared"), tensor);
                        made.entry(of.unwrap_or(id)).or_default().push(id);
                        id
                    }
                })
            }
        });
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};
    use lgp_memory::{DType, Tensor};

    #[test]
    fn constant_weights_are_packed_once() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let w = g.initializer("w", Tensor::zeros(DType::F32, [4, 4])?);
        let c = g.initializer("c", Tensor::from_slice([1], &[2f32])?);
        let y = g.node("MatMul", &[x, w], []);
        let y = g.node("Gemm", &[y, w, c], [("beta", 3f32.into())]);
        let z = g.node("MatMul", &[w, y], []);
        g.output("y", y, f32_type(&[None, Some(4)]));
        g.output("z", z, f32_type(&[Some(4), Some(4)]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        Preparation { on_device: false }.run(&mut graph)?;
        let names: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(names, ["MatMulPacked", "MatMulPacked", "MatMul"]);
        assert_eq!(graph.nodes[0].inputs[1], graph.nodes[1].inputs[1]);
        let bias = graph.nodes[1].inputs[2].and_then(|id| graph.constant(id));
        assert_eq!(bias.map(|b| b.as_slice::<f32>()), Some(Ok(&[6f32; 4][..])));
        Ok(())
    }

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
            Preparation { on_device: true }.run(&mut graph)?;
            assert_eq!(graph.nodes[0].op.name(), expected);
            graph.infer()?;
        }
        Ok(())
    }
}
