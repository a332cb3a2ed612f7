//! Turns a [`Model`] into a [`Graph`] through the registry's mappings.

use super::lowering::{Lowering, Names};
use super::node::NodeCx;
use super::registry;
use super::unsupported::{Unsupported, UnsupportedNode};
use crate::control::Body;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use crate::model::{Model, ModelNode, Subgraph};
use crate::options::SessionOptions;
use lgp_compute::ValueInfo;
use lgp_memory::Tensor;
use std::collections::{BTreeMap, HashSet};

/// The model's graph, before types are inferred. `options` apply to it and to the graphs inside its
/// nodes.
///
/// # Errors
/// [`Unsupported`](crate::Error::Unsupported) with everything in the model that cannot be mapped.
pub(crate) fn lower(model: &Model, options: SessionOptions) -> Result<Graph> {
    Ok(lower_with_nodes(model, options)?.0)
}

/// As [`lower`], with the model's node of each of the graph's nodes.
///
/// # Errors
/// As [`lower`].
pub(crate) fn lower_with_nodes(
    model: &Model,
    options: SessionOptions,
) -> Result<(Graph, Vec<usize>)> {
    let mut graph = Graph { options, ..Graph::default() };
    let mut names = store(&mut graph, model.initializers());
    for spec in model.inputs() {
        let id = graph.add_value(&spec.name);
        graph.values[id.0].info = Some(ValueInfo::holding(spec.kind, spec.ty.clone()));
        graph.inputs.push(id);
        names.insert(spec.name.clone(), id);
    }
    let outputs: Vec<&str> = model.outputs().iter().map(|o| o.name.as_str()).collect();
    let mut lowering = Lowering {
        opsets: model.opsets().clone(),
        operators: model.operators.clone(),
        unsupported: Unsupported::default(),
        depth: 0,
    };
    let nodes = lowering.nodes(&mut graph, model.nodes(), &outputs, &mut names);
    if !lowering.unsupported.is_empty() {
        return Err(lowering.unsupported.into());
    }
    finish(&mut graph, &outputs, &names);
    Ok((graph, nodes))
}

/// Adds stored tensors.
fn store(graph: &mut Graph, stored: &BTreeMap<String, Tensor>) -> Names {
    let stored = stored.iter();
    stored.map(|(name, t)| (name.clone(), graph.add_constant(name, t.clone()))).collect()
}

fn finish(graph: &mut Graph, outputs: &[&str], names: &Names) {
    for &name in outputs {
        if let Some(&id) = names.get(name) {
            graph.outputs.push((name.to_owned(), id));
        }
    }
}

impl Lowering {
    /// Lowers the nodes; answers the index of the lowered node for each node of the graph.
    fn nodes(
        &mut self,
        graph: &mut Graph,
        nodes: &[ModelNode],
        outputs: &[&str],
        names: &mut Names,
    ) -> Vec<usize> {
        let mut lowered = vec![0; graph.nodes.len()];
        let read = nodes.iter().flat_map(ModelNode::reads).chain(outputs.iter().copied());
        let read: HashSet<&str> = read.collect();
        for (index, node) in nodes.iter().enumerate() {
            // Names were checked when the model was made: a name without a value is an absent one.
            let inputs = node.inputs.iter().map(|name| names.get(name).copied()).collect();
            let mut outputs = Vec::with_capacity(node.outputs.len());
            for name in &node.outputs {
                outputs.push(read.contains(name.as_str()).then(|| {
                    let id = graph.add_value(name);
                    names.insert(name.clone(), id);
                    id
                }));
            }
            self.node(graph, node, inputs, outputs, names);
            lowered.resize(graph.nodes.len(), index);
        }
        lowered
    }

    fn node(
        &mut self,
        graph: &mut Graph,
        node: &ModelNode,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<Option<ValueId>>,
        names: &Names,
    ) {
        let Some(map) = registry::find(&node.domain, &node.op_type) else {
            match self.operators.make(node) {
                None => self.unsupported.operator(&node.domain, &node.op_type, &node.name),
                Some(Ok(op)) => graph.nodes.push(Node {
                    name: node.name.clone(),
                    op_type: Some(node.op_type.as_str().into()),
                    op,
                    inputs,
                    outputs,
                }),
                Some(Err(reason)) => self.unsupported.nodes.push(UnsupportedNode {
                    node: node.name.clone(),
                    op_type: node.op_type.clone(),
                    reason,
                }),
            }
            return;
        };
        let opset = self.opsets.get(&node.domain).copied().unwrap_or(1);
        let mut cx = NodeCx::new(graph, node, opset, inputs, outputs, names, self);
        let reasons = match map(&mut cx) {
            Err(reason) => vec![reason],
            Ok(()) => {
                let unread = cx.unread().into_iter();
                unread
                    .map(|key| format!("attribute '{key}' is not supported in opset {opset}"))
                    .collect()
            }
        };
        self.unsupported.nodes.extend(reasons.into_iter().map(|reason| UnsupportedNode {
            node: node.name.clone(),
            op_type: node.op_type.clone(),
            reason,
        }));
    }

    /// Lowers a graph inside a node into the graph around it, with the values given for its
    /// inputs, and returns its outputs.
    pub(crate) fn inline(
        &mut self,
        graph: &mut Graph,
        around: &Names,
        inner: &Subgraph,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, String> {
        let (given, expected) = (inputs.len(), inner.inputs.len());
        if given != expected {
            let name = &inner.name;
            return Err(format!("its graph '{name}' has {expected} inputs, expected {given}"));
        }
        let mut names = around.clone();
        names.extend(store(graph, &inner.initializers));
        names.extend(inner.inputs.iter().cloned().zip(inputs.iter().copied()));
        let outputs: Vec<&str> = inner.outputs.iter().map(String::as_str).collect();
        self.nodes(graph, &inner.nodes, &outputs, &mut names);
        let missing = || format!("its graph '{}' has outputs that nothing defines", inner.name);
        outputs.iter().map(|name| names.get(*name).copied().ok_or_else(missing)).collect()
    }

    /// A graph inside a node, and the values that it captures from the graph around it. These
    /// become inputs after its own; captured constants are stored in the graph itself.
    pub(crate) fn body(
        &mut self,
        outer: &Graph,
        around: &Names,
        inner: &Subgraph,
    ) -> Result<(Body, Vec<ValueId>), String> {
        let mut graph = Graph { options: outer.options, ..Graph::default() };
        let mut names = store(&mut graph, &inner.initializers);
        for name in &inner.inputs {
            let id = graph.add_value(name);
            graph.inputs.push(id);
            names.insert(name.clone(), id);
        }
        let mut captured = Vec::new();
        for name in &inner.captures {
            let Some(&id) = around.get(name) else {
                return Err(format!("its graph reads '{name}', which nothing defines"));
            };
            let own = match outer.constant(id) {
                Some(tensor) => graph.add_constant(name, tensor.clone()),
                None => {
                    let own = graph.add_value(name);
                    graph.inputs.push(own);
                    captured.push(id);
                    own
                }
            };
            names.insert(name.clone(), own);
        }
        let outputs: Vec<&str> = inner.outputs.iter().map(String::as_str).collect();
        let beside = std::mem::take(&mut self.depth);
        self.nodes(&mut graph, &inner.nodes, &outputs, &mut names);
        let depth = self.depth + 1;
        self.depth = beside.max(depth);
        finish(&mut graph, &outputs, &names);
        if graph.outputs.len() != outputs.len() && self.unsupported.is_empty() {
            return Err(format!("its graph '{}' has outputs that nothing defines", inner.name));
        }
        Ok((Body::new(graph, inner.inputs.len(), depth), captured))
    }
}
