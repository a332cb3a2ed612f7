//! Lets channels-last convolutions add the residual and apply the activation that follow them
//! while the result is still in registers.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::Activation;
use lgp_compute::ValueInfo;
use lgp_compute::ops::{Binary, BinaryKind, Clip, ConvNhwc, Unary, UnaryKind};
use lgp_memory::{DType, Dim, SymShape};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct ConvEpilogue;

impl Pass for ConvEpilogue {
    fn name(&self) -> &'static str {
        "conv-epilogue"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            for id in node.inputs.iter().flatten() {
                readers[id.0].push(index);
            }
        }
        for (_, id) in &graph.outputs {
            // An output must stay: no node is a reader with this number.
            readers[id.0].push(usize::MAX);
        }
        let shapes = named_shapes(graph);
        let mut removed = vec![false; graph.nodes.len()];
        for index in 0..graph.nodes.len() {
            if removed[index] || graph.op::<ConvNhwc>(index).is_none() {
                continue;
            }
            let mut at = index;
            // Whatever is taken in moves the convolution to its place, where all that it reads is
            // there.
            while let Some(next) = taken_in(graph, at, &readers, &shapes) {
                removed[at] = true;
                next.also.iter().for_each(|&node| removed[node] = true);
                at = next.place;
                removed[at] = false;
                graph.nodes[at] = next.node;
            }
        }
        let mut removed = removed.into_iter();
        graph.nodes.retain(|_| !removed.next().unwrap_or(false));
        Ok(())
    }
}

/// The shape of each value, where every unknown dimension has a name of its own: what keeps a
/// size keeps its name, so that equal names tell equal sizes.
fn named_shapes(graph: &Graph) -> Vec<Option<SymShape>> {
    let mut infos: Vec<Option<ValueInfo>> =
        graph.values.iter().map(|value| value.info.clone()).collect();
    for (index, info) in infos.iter_mut().enumerate() {
        name_dims(info, index);
    }
    for node in &graph.nodes {
        let given: Vec<Option<&ValueInfo>> =
            node.inputs.iter().map(|id| id.and_then(|id| infos[id.0].as_ref())).collect();
        let Ok(outputs) = node.op.infer(&given) else { continue };
        for (id, info) in node.outputs.iter().zip(outputs) {
            if let Some(id) = id {
                infos[id.0] = Some(info);
                name_dims(&mut infos[id.0], id.0);
            }
        }
    }
    infos.into_iter().map(|info| info?.ty.shape).collect()
}

/// Names the unknown dimensions of the value of a number.
fn name_dims(info: &mut Option<ValueInfo>, number: usize) {
    let Some(shape) = info.as_mut().and_then(|info| info.ty.shape.as_mut()) else { return };
    for (axis, dim) in shape.0.iter_mut().enumerate() {
        if *dim == Dim::Unknown {
            *dim = Dim::Symbol(format!("{number}.{axis} of a value").into());
        }
    }
}

/// A convolution that does the work of what followed it.
struct Fused {
    node: Node,
    /// The node that it replaces.
    place: usize,
    /// Other nodes that nobody needs any more.
    also: Vec<usize>,
}

/// What follows the convolution at `index`, if it can be taken in.
fn taken_in(
    graph: &Graph,
    index: usize,
    readers: &[Vec<usize>],
    shapes: &[Option<SymShape>],
) -> Option<Fused> {
    let conv = graph.op::<ConvNhwc>(index)?;
    if conv.activation != Activation::None {
        return None;
    }
    let out = graph.nodes[index].outputs.first().copied().flatten()?;
    match *readers[out.0].as_slice() {
        [next] if next < graph.nodes.len() => {
            if let Some(activation) = activation(graph, next) {
                return Some(activated(graph, index, conv, activation, next, vec![]));
            }
            residual(graph, index, conv, out, next, shapes)
        }
        [a, b] if a.max(b) < graph.nodes.len() => {
            let (activation, gate) = gated(graph, out, a, b, readers)?;
            let place = if gate == a { b } else { a };
            Some(activated(graph, index, conv, activation, place, vec![gate]))
        }
        _ => None,
    }
}

fn activated(
    graph: &Graph,
    index: usize,
    conv: &ConvNhwc,
    activation: Activation,
    place: usize,
    also: Vec<usize>,
) -> Fused {
    let from = &graph.nodes[index];
    let node = Node {
        name: from.name.clone(),
        op_type: from.op_type.clone(),
        op: Arc::new(conv.clone().with_activation(activation)),
        inputs: from.inputs.clone(),
        outputs: graph.nodes[place].outputs.clone(),
    };
    Fused { node, place, also }
}

/// The activation that a node is.
fn activation(graph: &Graph, index: usize) -> Option<Activation> {
    if let Some(op) = graph.op::<Unary>(index) {
        return Activation::from_unary(op.kind);
    }
    let op = graph.op::<Clip>(index)?;
    let bound = |i: usize, attribute: Option<f32>, open: f32| match graph.nodes[index]
        .inputs
        .get(i)
        .copied()
        .flatten()
    {
        Some(id) => graph.constant(id)?.as_slice::<f32>().ok()?.first().copied(),
        None => Some(attribute.unwrap_or(open)),
    };
    let min = bound(1, op.min, f32::NEG_INFINITY)?;
    let max = bound(2, op.max, f32::INFINITY)?;
    (min <= max).then_some(Activation::Clip { min, max })
}

/// `x · gate(x)` of the two readers of `x`: the activation, and which of them is the gate.
fn gated(
    graph: &Graph,
    x: ValueId,
    a: usize,
    b: usize,
    readers: &[Vec<usize>],
) -> Option<(Activation, usize)> {
    for (gate, product) in [(a, b), (b, a)] {
        let Some(kind) = graph.op::<Unary>(gate).map(|op| op.kind) else { continue };
        let Some(Some(gated)) = graph.nodes[gate].outputs.first() else { continue };
        let multiplies = graph.op::<Binary>(product).is_some_and(|op| op.kind == BinaryKind::Mul);
        let inputs = &graph.nodes[product].inputs;
        let both = *inputs == [Some(x), Some(*gated)] || *inputs == [Some(*gated), Some(x)];
        if !multiplies || !both || readers[gated.0].as_slice() != [product] {
            continue;
        }
        match kind {
            UnaryKind::Sigmoid => return Some((Activation::Silu, gate)),
            UnaryKind::HardSigmoid { alpha, beta }
                if (alpha - 1. / 6.).abs() < 1e-6 && (beta - 0.5).abs() < 1e-6 =>
            {
                return Some((Activation::HardSwish, gate));
            }
            _ => {}
        }
    }
    None
}

/// The sum with another tensor of exactly the same shape.
fn residual(
    graph: &Graph,
    index: usize,
    conv: &ConvNhwc,
    out: ValueId,
    next: usize,
    shapes: &[Option<SymShape>],
) -> Option<Fused> {
    if graph.op::<Binary>(next)?.kind != BinaryKind::Add {
        return None;
    }
    let mut inputs = graph.nodes[index].inputs.clone();
    if inputs.get(3).copied().flatten().is_some() {
        return None;
    }
    let other = match graph.nodes[next].inputs.as_slice() {
        [Some(a), Some(b)] if *a == out && *b != out => *b,
        [Some(a), Some(b)] if *b == out && *a != out => *a,
        _ => return None,
    };
    // Dimensions that are not known to be equal might broadcast.
    let (mine, theirs) = (shapes[out.0].as_ref()?, shapes[other.0].as_ref()?);
    let same = graph.info(other)?.ty.dtype == DType::F32
        && mine == theirs
        && !mine.0.contains(&Dim::Unknown);
    if !same || graph.constant(other).is_some() {
        return None;
    }
    inputs.resize(3, None);
    inputs.push(Some(other));
    let node = Node {
        name: graph.nodes[index].name.clone(),
        op_type: graph.nodes[index].op_type.clone(),
        op: Arc::new(conv.clone()),
        inputs,
        outputs: graph.nodes[next].outputs.clone(),
    };
    Some(Fused { node, place: next, also: vec![] })
}
