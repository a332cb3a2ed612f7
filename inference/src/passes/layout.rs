//! Moves regions around convolutions to channels-last, the layout of the fast kernels: a pixel's
//! channels lie side by side.
//!
//! Operators tell their form on channels-last tensors. Transposes stand at the borders of a region,
//! and cost less than the operators inside gain.

mod choice;
#[cfg(test)]
mod tests;

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::options::Precision;
use lgp_compute::ValueInfo;
use lgp_compute::ops::Transpose;
use lgp_compute::reorder::Reordered;
use lgp_compute::rewrite::{Hints, Operand, Step};
use std::sync::Arc;

/// The order of axes from `[n, c, h, w]` to `[n, h, w, c]`.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
/// The order of axes back.
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

#[derive(Debug)]
pub(crate) struct ChannelsLast;

/// The channels-last form of a node, if there is one.
fn form<'a>(
    node: &'a Node,
    given: &[Option<&'a ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Reordered<'a>> {
    // An input of unknown type might have any layout.
    let known = node.inputs.iter().zip(given).all(|(id, info)| id.is_some() == info.is_some());
    if known { node.op.reordered(&CHANNELS_LAST, given, outputs) } else { None }
}

impl Pass for ChannelsLast {
    fn name(&self) -> &'static str {
        "channels-last"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let chosen = choice::choose(graph);
        if !chosen.contains(&true) {
            return Ok(());
        }
        let (uses, options) = (graph.uses(), graph.options);
        let bf16 = options.precision == Precision::Fast;
        let hints = Hints { isa: options.isa, bf16, on_device: false };
        let nodes = std::mem::take(&mut graph.nodes);
        let (plain, last) = (graph.values.len(), vec![None; graph.values.len()]);
        let mut rewrite = Rewrite { plain: vec![true; plain], graph, last, uses, hints };
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

/// A node in its channels-last form.
struct Converted {
    steps: Vec<Step>,
    /// The inputs of the node that the steps read channels-last.
    reads: Vec<bool>,
    /// The outputs of the node that the steps write channels-last.
    writes: Vec<bool>,
}

/// The graph while its nodes are rewritten.
struct Rewrite<'a> {
    graph: &'a mut Graph,
    /// The values of the original graph that exist so far in their own layout.
    plain: Vec<bool>,
    /// The channels-last forms of these values.
    last: Vec<Option<ValueId>>,
    /// The number of readers of each value. A node no longer reads a weight that was laid out anew.
    uses: Vec<usize>,
    hints: Hints,
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
        let Some(Converted { steps, reads, writes }) = self.converted(&node)? else {
            return self.node(node, false);
        };
        let count = steps.len();
        let mut made = Vec::with_capacity(count);
        for (at, step) in steps.into_iter().enumerate() {
            let mut inputs = Vec::with_capacity(step.inputs.len());
            for operand in step.inputs {
                inputs.push(match operand {
                    Operand::Absent => None,
                    Operand::Input(i) => match node.inputs.get(i).copied().flatten() {
                        Some(id) if reads.get(i) == Some(&true) => Some(self.need_last(id)?),
                        Some(id) => Some(self.need_plain(id)?),
                        None => None,
                    },
                    Operand::Constant(tensor) => {
                        let name = format!("{}.channels_last.{}", node.name, inputs.len());
                        Some(self.graph.add_constant(name, tensor))
                    }
                    Operand::Made(i) => made.get(i).copied(),
                });
            }
            let outputs = if at + 1 == count {
                self.outputs(&node, &writes)
            } else {
                let id = self.graph.add_value(format!("{}.{at}", node.name));
                made.push(id);
                vec![Some(id)]
            };
            let op = step.op.unwrap_or_else(|| Arc::clone(&node.op));
            self.push(Node { op, inputs, outputs, ..node.clone() })?;
        }
        Ok(())
    }

    /// The steps in the place of a node.
    fn converted(&mut self, node: &Node) -> Result<Option<Converted>> {
        let given = self.graph.infos(node);
        let outputs = node.op.infer(&given).map_err(|e| node_error(node, e))?;
        let Some(form) = form(node, &given, &outputs) else { return Ok(None) };
        let (reads, writes) = (form.inputs.clone(), form.outputs.clone());
        let steps = form.steps(self.hints).map_err(|e| node_error(node, e))?;
        // The old layout of a weight is dropped once nothing reads it.
        for (i, id) in node.inputs.iter().enumerate() {
            let is_read = steps.iter().flat_map(|step| &step.inputs);
            let is_read =
                is_read.into_iter().any(|it| matches!(it, Operand::Input(own) if *own == i));
            if let (Some(id), false) = (id, is_read) {
                self.graph.release(*id, &mut self.uses);
            }
        }
        Ok(Some(Converted { steps, reads, writes }))
    }

    /// The values that the converted node makes.
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
