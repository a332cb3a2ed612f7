//! Turns a [`Model`] into a [`Graph`] through the registry's mappings.

use super::node::NodeCx;
use super::registry;
use super::unsupported::{Unsupported, UnsupportedNode};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::model::Model;
use lgp_compute::ValueInfo;
use std::collections::{HashMap, HashSet};

/// The model's graph, its types not yet inferred.
///
/// # Errors
/// [`Unsupported`](crate::Error::Unsupported) with everything in the model that cannot be mapped.
pub(crate) fn lower(model: &Model) -> Result<Graph> {
    let mut graph = Graph::default();
    let mut ids: HashMap<&str, ValueId> = HashMap::new();
    for (name, tensor) in model.initializers() {
        ids.insert(name, graph.add_constant(name, tensor.clone()));
    }
    for spec in model.inputs() {
        let id = graph.add_value(&spec.name);
        graph.values[id.0].info = Some(ValueInfo::of(spec.ty.clone()));
        graph.inputs.push(id);
        ids.insert(&spec.name, id);
    }
    let read: HashSet<&str> = model
        .nodes()
        .iter()
        .flat_map(|n| n.inputs.iter())
        .chain(model.outputs().iter().map(|o| &o.name))
        .map(String::as_str)
        // No value has the empty name: it says that an input or output is absent.
        .filter(|name| !name.is_empty())
        .collect();

    let mut unsupported = Unsupported::default();
    for node in model.nodes() {
        // Names were checked when the model was made: what is not here is an absent input.
        let inputs = node.inputs.iter().map(|name| ids.get(name.as_str()).copied()).collect();
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for name in &node.outputs {
            outputs.push(read.contains(name.as_str()).then(|| {
                let id = graph.add_value(name);
                ids.insert(name, id);
                id
            }));
        }
        let Some(map) = registry::find(&node.domain, &node.op_type) else {
            unsupported.operator(&node.domain, &node.op_type, &node.name);
            continue;
        };
        let mut cx = NodeCx::new(&mut graph, node, model.opset(), inputs, outputs);
        let mut refuse = |reason: String| {
            unsupported.nodes.push(UnsupportedNode {
                node: node.name.clone(),
                op_type: node.op_type.clone(),
                reason,
            });
        };
        match map(&mut cx) {
            Err(reason) => refuse(reason),
            Ok(()) => {
                for key in cx.unread() {
                    refuse(format!("attribute '{key}' is not supported in opset {}", cx.opset));
                }
            }
        }
    }
    if !unsupported.is_empty() {
        return Err(unsupported.into());
    }
    for spec in model.outputs() {
        if let Some(&id) = ids.get(spec.name.as_str()) {
            graph.outputs.push((spec.name.clone(), id));
        }
    }
    Ok(graph)
}
