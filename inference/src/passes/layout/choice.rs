//! Chooses the nodes that move to channels-last by a minimum cut: their operators must gain more
//! than the transposes at the borders cost.

use super::{CHANNELS_FIRST, CHANNELS_LAST, form};
use crate::division::{self, NodeCost, ValueCost};
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ValueInfo;
use lgp_memory::Dim;

/// The multiply-adds that an operator must do for each element that a transpose at the border
/// moves. A transpose moves an element in the time of some ten to twenty multiply-adds.
const PRODUCTS_AN_ELEMENT: u64 = 16;
/// The size assumed for unknown dimensions other than the first.
const SIDE: usize = 32;
/// More than any gain.
const NEVER: u64 = 1 << 32;

/// For each node, whether it moves.
pub(super) fn choose(graph: &Graph) -> Vec<bool> {
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    // For each value, the node that makes it in the node's own layout, if there is one.
    let mut from: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
    let mut plain = vec![false; graph.values.len()];
    let mut gains = false;
    for (index, node) in graph.nodes.iter().enumerate() {
        let (cost, reads, writes) = stance(graph, node);
        gains |= cost.stays > 0;
        nodes.push(cost);
        for (i, id) in node.inputs.iter().enumerate() {
            let Some(id) = id else { continue };
            match reads.get(i) == Some(&true) {
                true => readers[id.0].push(index),
                false => plain[id.0] = true,
            }
        }
        for (o, id) in node.outputs.iter().enumerate() {
            if let (Some(id), Some(true)) = (id, writes.get(o)) {
                from[id.0] = Some(index);
            }
        }
    }
    if !gains {
        return vec![false; nodes.len()];
    }
    graph.outputs.iter().for_each(|(_, id)| plain[id.0] = true);
    let all = (0..graph.values.len()).map(ValueId);
    let moving = all.filter(|id| {
        graph.constant(*id).is_none() && !readers[id.0].is_empty() || from[id.0].is_some()
    });
    let values: Vec<ValueCost> = moving
        .map(|id| {
            let cost = moved_elements(graph, id).saturating_mul(PRODUCTS_AN_ELEMENT);
            let to = readers[id.0].clone();
            ValueCost { from: from[id.0], to, stays: plain[id.0], out: cost, back: cost }
        })
        .collect();
    division::moved(&nodes, &values)
}

/// The cost of a node in either layout, and the inputs that it reads and the outputs that it writes
/// in its own layout.
fn stance(graph: &Graph, node: &Node) -> (NodeCost, Vec<bool>, Vec<bool>) {
    let given = graph.infos(node);
    // One side of the model's own transposes is channels-last already.
    if let Some(order) = order(node, &given) {
        let always = NodeCost { moved: Some(0), stays: NEVER };
        if order == CHANNELS_FIRST {
            return (always, vec![false], vec![true]);
        }
        if order == CHANNELS_LAST {
            return (always, vec![true], vec![false]);
        }
    }
    let Ok(outputs) = node.op.infer(&given) else {
        return (NodeCost { moved: None, stays: 0 }, Vec::new(), Vec::new());
    };
    match form(node, &given, &outputs) {
        None => (NodeCost { moved: None, stays: 0 }, Vec::new(), Vec::new()),
        Some(form) => {
            let gain = if form.is_faster { products(node, &given) } else { 0 };
            (NodeCost { moved: Some(0), stays: gain }, form.inputs, form.outputs)
        }
    }
}

/// The order of the axes after a node that only reorders four axes.
fn order(node: &Node, given: &[Option<&ValueInfo>]) -> Option<Vec<usize>> {
    let x = given.first().copied().flatten().filter(|x| node.op.moves() && x.rank() == Some(4))?;
    let outputs = node.op.infer(given).ok()?;
    // A reshape may keep the rank too, so the axes must tell the order.
    node.op.axes(&[Some(x)], &outputs).permutation(4)
}

/// The approximate number of multiply-adds of a node.
fn products(node: &Node, given: &[Option<&ValueInfo>]) -> u64 {
    let sized: Vec<Option<ValueInfo>> = given.iter().map(|info| info.map(sized)).collect();
    let sized: Vec<Option<&ValueInfo>> = sized.iter().map(Option::as_ref).collect();
    let outputs = node.op.infer(&sized).unwrap_or_default();
    node.op.multiply_adds(&sized, &outputs)
}

/// The value with assumed sizes for unknown dimensions: one image of a usual size.
fn sized(info: &ValueInfo) -> ValueInfo {
    let mut info = info.clone();
    if let Some(shape) = &mut info.ty.shape {
        for (axis, dim) in shape.0.iter_mut().enumerate() {
            if dim.known().is_none() {
                *dim = Dim::Known(if axis == 0 { 1 } else { SIDE });
            }
        }
    }
    info
}

/// The approximate number of elements that a transpose of a value moves: almost none if there is
/// only one pixel or one channel.
fn moved_elements(graph: &Graph, id: ValueId) -> u64 {
    let Some(shape) = graph.info(id).and_then(|info| sized(info).ty.concrete_shape()) else {
        return 0;
    };
    match *shape.dims() {
        [_, 1, _, _] | [_, _, 1, 1] => 1,
        _ => shape.elements().map_or(0, |n| n as u64),
    }
}
