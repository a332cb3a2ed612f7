//! Joins element-wise operators with each other and with the operator before them, so that a device
//! keeps the values between them in registers.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::device::{Element, Fused, Operand, Recipe, Step};
use lgp_compute::{Op, ValueInfo};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most inputs of the steps: each is a parameter of the kernel, and an index to calculate.
const INPUTS_MAX: usize = 8;
/// Most steps of one kernel: with these it has enough to do.
const STEPS_MAX: usize = 24;

/// Needs the shapes of all values that it joins, so it runs once dimensions are known.
#[derive(Debug)]
pub(crate) struct DeviceFusion;

/// The source of an operator's input in a group.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Base,
    Step(usize),
    Value(ValueId),
}

/// An operator and its inputs.
type Application<S> = (Arc<dyn Op>, Vec<Option<S>>);

/// Operators that one node of the graph stands for.
#[derive(Debug, Clone)]
struct Group {
    /// The name of the base, or of the last step.
    name: String,
    base: Option<Application<ValueId>>,
    steps: Vec<Application<Source>>,
}

impl Group {
    /// The group of a single node: a step if the node is element-wise, and a base otherwise.
    fn of(graph: &Graph, node: &Node) -> Self {
        let op = Arc::clone(&node.op);
        if is_elementwise(graph, node) {
            let sources = node.inputs.iter().map(|id| id.map(Source::Value)).collect();
            Self { name: node.name.clone(), base: None, steps: vec![(op, sources)] }
        } else {
            let base = Some((op, node.inputs.clone()));
            Self { name: node.name.clone(), base, steps: Vec::new() }
        }
    }

    /// This group joined with the group that makes `value`; `None` if both have a base.
    fn taking_in(&self, value: ValueId, producer: &Self) -> Option<Self> {
        if self.base.is_some() && producer.base.is_some() {
            return None;
        }
        let before = producer.steps.len();
        let last = before.checked_sub(1).map_or(Source::Base, Source::Step);
        let moved = |source: &Option<Source>| match *source {
            Some(Source::Value(id)) if id == value => Some(last),
            Some(Source::Step(i)) => Some(Source::Step(before + i)),
            other => other,
        };
        let own = self.steps.iter();
        let own = own.map(|(op, sources)| (Arc::clone(op), sources.iter().map(moved).collect()));
        let steps = producer.steps.iter().cloned().chain(own).collect();
        let named = if producer.base.is_some() { producer } else { self };
        let base = self.base.as_ref().or(producer.base.as_ref()).cloned();
        Some(Self { name: named.name.clone(), base, steps })
    }

    /// The operator and its inputs; `None` if there are too many inputs or steps.
    fn built(&self) -> Option<(Fused, Vec<Option<ValueId>>)> {
        let mut read: Vec<ValueId> = Vec::new();
        let first = usize::from(self.base.is_some());
        let mut steps = Vec::with_capacity(self.steps.len());
        for (op, sources) in &self.steps {
            let operands = sources.iter().map(|source| {
                Some(match (*source)? {
                    Source::Base => Operand::Input(0),
                    Source::Step(i) => Operand::Step(i),
                    Source::Value(id) => {
                        let known = read.iter().position(|&other| other == id);
                        Operand::Input(
                            first
                                + known.unwrap_or_else(|| {
                                    read.push(id);
                                    read.len() - 1
                                }),
                        )
                    }
                })
            });
            steps.push(Step { operands: operands.collect(), op: Arc::clone(op) });
        }
        if read.len() > INPUTS_MAX || steps.len() > STEPS_MAX {
            return None;
        }
        let mut inputs = self.base.as_ref().map_or(Vec::new(), |(_, inputs)| inputs.clone());
        let base = self.base.as_ref().map(|(op, inputs)| (Arc::clone(op), inputs.len()));
        inputs.extend(read.into_iter().map(Some));
        Some((Fused::new(base, steps), inputs))
    }
}

fn info<'a>(graph: &'a Graph, id: &Option<ValueId>) -> Option<&'a ValueInfo> {
    id.and_then(|id| graph.info(id))
}

fn is_elementwise(graph: &Graph, node: &Node) -> bool {
    let element =
        |id: &Option<ValueId>| Some(Element { dtype: info(graph, id)?.ty.dtype, name: "x" });
    let elements: Vec<Option<Element<'_>>> = node.inputs.iter().map(element).collect();
    node.op.expression(&elements).is_some()
}

/// Whether a device has kernels for the group as one operator.
fn runs(graph: &Graph, group: &Group, output: ValueId) -> bool {
    let Some((fused, inputs)) = group.built() else { return false };
    let Some(output) = graph.info(output) else { return false };
    let inputs: Vec<Option<&ValueInfo>> = inputs.iter().map(|id| info(graph, id)).collect();
    Recipe::new(&fused, &inputs, std::slice::from_ref(output)).is_some()
}

impl Pass for DeviceFusion {
    fn name(&self) -> &'static str {
        "device-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let readers = readers(graph);
        // The group that makes each value that a reader may take in.
        let mut maker: HashMap<ValueId, usize> = HashMap::new();
        let mut groups: Vec<Option<Group>> = Vec::with_capacity(graph.nodes.len());
        let mut taken = vec![false; graph.nodes.len()];
        for index in 0..graph.nodes.len() {
            let node = &graph.nodes[index];
            let [Some(output)] = node.outputs[..] else {
                groups.push(None);
                continue;
            };
            let mut group = Group::of(graph, node);
            if group.base.is_none() {
                for (value, at) in candidates(node, &maker, &groups) {
                    let shape = |id| graph.info(id).and_then(|info| info.ty.concrete_shape());
                    let fits = shape(value).is_some() && shape(value) == shape(output);
                    let producer = groups[at].as_ref().filter(|_| fits);
                    let joined = producer.and_then(|made| group.taking_in(value, made));
                    if let Some(joined) = joined.filter(|it| runs(graph, it, output)) {
                        group = joined;
                        groups[at] = None;
                        taken[at] = true;
                    }
                }
            }
            if readers[output.0] == 1 {
                maker.insert(output, index);
            }
            groups.push(Some(group));
        }
        for (node, group) in graph.nodes.iter_mut().zip(groups) {
            let Some(group) = group else { continue };
            let is_joined = group.steps.len() + usize::from(group.base.is_some()) > 1;
            if let Some((fused, inputs)) = group.built().filter(|_| is_joined) {
                let (name, outputs) = (group.name, std::mem::take(&mut node.outputs));
                *node = Node { name, op_type: None, op: Arc::new(fused), inputs, outputs };
            }
        }
        graph.remove(&taken);
        Ok(())
    }
}

/// The number of nodes that read each value, plus one for each output of the graph.
fn readers(graph: &Graph) -> Vec<usize> {
    let mut readers = vec![0usize; graph.values.len()];
    for node in &graph.nodes {
        let read: HashSet<ValueId> = node.inputs.iter().flatten().copied().collect();
        read.into_iter().for_each(|id| readers[id.0] += 1);
    }
    graph.outputs.iter().for_each(|(_, id)| readers[id.0] += 1);
    readers
}

/// The inputs of a node that it may take in, with the groups that make them: those with a base
/// first, then the latest first, whose other inputs live shortest.
fn candidates(
    node: &Node,
    maker: &HashMap<ValueId, usize>,
    groups: &[Option<Group>],
) -> Vec<(ValueId, usize)> {
    let made = node.inputs.iter().flatten().filter_map(|id| Some((*id, *maker.get(id)?)));
    let mut made: Vec<(ValueId, usize)> = made.collect();
    made.sort_by_key(|(_, at)| {
        let has_base = groups[*at].as_ref().is_some_and(|group| group.base.is_some());
        std::cmp::Reverse((has_base, *at))
    });
    made.dedup();
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{self, tests::f32_type, tests::graph_of};
    use crate::{Attr, GraphBuilder};

    fn fused(graph: &Graph) -> Vec<String> {
        graph.nodes.iter().map(|node| node.op.label()).collect()
    }

    fn optimized(g: GraphBuilder) -> Result<Vec<String>> {
        let mut graph = graph_of(g)?;
        passes::optimize_for_device(&mut graph)?;
        passes::specialize(&mut graph)?;
        Ok(fused(&graph))
    }

    #[test]
    fn what_follows_a_product_is_computed_where_it_is_stored() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let [a, b, c] = ["a", "b", "c"].map(|name| g.input(name, f32_type(&[Some(8), Some(8)])));
        let product = g.node("MatMul", &[a, b], []);
        let sum = g.node("Add", &[c, product], []);
        let y = g.node("Relu", &[sum], []);
        g.output("y", y, f32_type(&[Some(8), Some(8)]));
        // Two nodes read `y`, so it must be stored. A node that reads a value twice is one reader.
        let e = g.node("Exp", &[y], []);
        let square = g.node("Mul", &[e, e], []);
        let z = g.node("Softmax", &[square], [("axis", Attr::from(-1))]);
        g.output("z", z, f32_type(&[Some(8), Some(8)]));
        assert_eq!(optimized(g)?, ["MatMul+Add+Relu", "Exp+Mul", "Softmax"]);
        Ok(())
    }

    #[test]
    fn one_of_two_products_is_joined_and_results_that_grow_are_not() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let square = f32_type(&[Some(8), Some(8)]);
        let [a, b] = ["a", "b"].map(|name| g.input(name, square.clone()));
        let row = g.input("row", f32_type(&[Some(8)]));
        let first = g.node("MatMul", &[a, b], []);
        let second = g.node("MatMul", &[b, a], []);
        let small = g.node("Tanh", &[row], []);
        let sum = g.node("Add", &[first, second], []);
        let y = g.node("Mul", &[sum, small], []);
        g.output("y", y, square);
        assert_eq!(optimized(g)?, ["MatMul", "Tanh", "MatMul+Add+Mul"]);
        Ok(())
    }
}
