//! Moves regions around convolutions to channels-last: a pixel's channels lie side by side there,
//! which is how the fast kernels read and write them.
//!
//! Convolutions anchor a region, what reads channels-last and can work on it follows, and
//! transposes stand at the borders. A region whose transposes cost more than its convolutions
//! gain stays as it is.

mod anchor;
mod follow;
mod regions;
#[cfg(test)]
mod tests;

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ops::Transpose;
use lgp_compute::{Context, Op};
use lgp_memory::Tensor;
use std::sync::Arc;

/// Takes `[n, c, h, w]` to `[n, h, w, c]`.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
/// Takes it back; and where each axis of `[n, c, h, w]` is in `[n, h, w, c]`.
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

#[derive(Debug)]
pub(crate) struct ChannelsLast;

/// A node on channels-last tensors.
struct Converted {
    /// One after the other; the last one makes the outputs.
    steps: Vec<Step>,
    /// Which outputs are channels-last.
    channels_last: Vec<bool>,
}

struct Step {
    op: Arc<dyn Op>,
    inputs: Vec<Input>,
}

/// What a step reads.
enum Input {
    Absent,
    /// A value of the original graph, as it is there.
    AsItIs(ValueId),
    /// The channels-last form of a value of the original graph.
    ChannelsLast(ValueId),
    Constant(Tensor),
    /// What the step before made.
    Previous,
}

impl Pass for ChannelsLast {
    fn name(&self) -> &'static str {
        "channels-last"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let chosen = regions::choose(graph);
        if !chosen.contains(&true) {
            return Ok(());
        }
        let uses = graph.uses();
        let nodes = std::mem::take(&mut graph.nodes);
        let (plain, last) = (graph.values.len(), vec![None; graph.values.len()]);
        let mut rewrite = Rewrite { plain: vec![true; plain], graph, last, uses };
        for node in &nodes {
            for id in node.outputs.iter().flatten() {
                rewrite.plain[id.0] = false;
            }
        }
        for (node, chosen) in nodes.into_iter().zip(chosen) {
            rewrite.node(node, chosen)?;
        }
        for (_, id) in rewrite.graph.outputs.clone() {
            rewrite.need_plain(id)?;
        }
        Ok(())
    }
}

/// The graph while its nodes are written again.
struct Rewrite<'a> {
    graph: &'a mut Graph,
    /// Which values of the original graph exist so far in their own layout.
    plain: Vec<bool>,
    /// Their channels-last forms.
    last: Vec<Option<ValueId>>,
    /// How many read each value; a weight that was packed is not read by its convolution any more.
    uses: Vec<usize>,
}

impl Rewrite<'_> {
    fn node(&mut self, node: Node, chosen: bool) -> Result<()> {
        if !chosen {
            for id in node.inputs.iter().flatten() {
                self.need_plain(*id)?;
            }
            node.outputs.iter().flatten().for_each(|id| self.plain[id.0] = true);
            return self.push(node);
        }
        let converted = if anchor::is_anchor(self.graph, &node) {
            let converted = anchor::anchor(self.graph, &node)?;
            if let Some(Some(weight)) = node.inputs.get(1) {
                self.graph.release(*weight, &mut self.uses);
            }
            converted
        } else if let Some(converted) = follow::follower(self.graph, &node) {
            converted
        } else {
            return self.node(node, false);
        };
        let count = converted.steps.len();
        let mut previous = None;
        for (i, step) in converted.steps.into_iter().enumerate() {
            let mut inputs = Vec::with_capacity(step.inputs.len());
            for input in step.inputs {
                inputs.push(match input {
                    Input::Absent => None,
                    Input::AsItIs(id) => Some(self.need_plain(id)?),
                    Input::ChannelsLast(id) => Some(self.need_last(id)?),
                    Input::Constant(tensor) => {
                        let name = format!("{}.channels_last.{}", node.name, inputs.len());
                        Some(self.graph.add_constant(name, tensor))
                    }
                    Input::Previous => previous,
                });
            }
            let outputs = if i + 1 == count {
                self.outputs(&node, &converted.channels_last)
            } else {
                let id = self.graph.add_value(format!("{}.{i}", node.name));
                previous = Some(id);
                vec![previous]
            };
            self.push(Node { op: step.op, inputs, outputs, ..node.clone() })?;
        }
        Ok(())
    }

    /// The values that a converted node makes.
    fn outputs(&mut self, node: &Node, channels_last: &[bool]) -> Vec<Option<ValueId>> {
        let outputs = node.outputs.iter().enumerate().map(|(i, id)| {
            let id = (*id)?;
            if channels_last.get(i) == Some(&true) {
                let name = format!("{}.channels_last", self.graph.values[id.0].name);
                let last = self.graph.add_value(name);
                self.last[id.0] = Some(last);
                Some(last)
            } else {
                self.plain[id.0] = true;
                Some(id)
            }
        });
        outputs.collect()
    }

    /// The channels-last form of a value.
    fn need_last(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(last) = self.last[id.0] {
            return Ok(last);
        }
        let last = self.graph.add_value(format!("{}.channels_last", self.graph.values[id.0].name));
        self.transpose(id, last, CHANNELS_LAST)?;
        self.last[id.0] = Some(last);
        Ok(last)
    }

    /// The value in its own layout.
    fn need_plain(&mut self, id: ValueId) -> Result<ValueId> {
        if !std::mem::replace(&mut self.plain[id.0], true)
            && let Some(last) = self.last[id.0]
        {
            self.transpose(last, id, CHANNELS_FIRST)?;
        }
        Ok(id)
    }

    fn transpose(&mut self, from: ValueId, to: ValueId, perm: [usize; 4]) -> Result<()> {
        let name = self.graph.values[to.0].name.clone();
        let op = Arc::new(Transpose { perm: Some(perm.to_vec()) });
        let (inputs, outputs) = (vec![Some(from)], vec![Some(to)]);
        self.push(Node { name, op_type: None, op, inputs, outputs })
    }

    fn push(&mut self, node: Node) -> Result<()> {
        self.graph.nodes.push(node);
        self.graph.infer_node(self.graph.nodes.len() - 1)
    }
}

/// The rank of a value where it is known.
fn rank_of(graph: &Graph, id: ValueId) -> Option<usize> {
    graph.info(id)?.ty.shape.as_ref().map(lgp_memory::SymShape::rank)
}

/// A constant of up to four axes as it broadcasts to channels-last tensors.
fn channels_last_constant(tensor: &Tensor) -> Option<Tensor> {
    let missing = 4usize.checked_sub(tensor.shape().rank())?;
    let dims: Vec<usize> = vec![1; missing].into_iter().chain(tensor.shape().to_vec()).collect();
    let plain = tensor.reshape(dims).ok()?;
    let op = Transpose { perm: Some(CHANNELS_LAST.to_vec()) };
    op.run(&Context::new(1), &[Some(plain.view())]).ok()?.pop()
}
