//! Lets operators add the bias and the residual and apply the activation that follow them, while
//! the result is still in registers or the cache.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, Readers, ValueId};
use lgp_compute::ops::BinaryKind;
use lgp_compute::rewrite::{Absorbed, Following};
use lgp_compute::{Activation, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor};

#[derive(Debug)]
pub(crate) struct Epilogues;

impl Pass for Epilogues {
    fn name(&self) -> &'static str {
        "epilogues"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let readers = graph.readers();
        let shapes = named_shapes(graph);
        let mut removed = vec![false; graph.nodes.len()];
        for index in 0..graph.nodes.len() {
            if removed[index] {
                continue;
            }
            let mut at = index;
            // The operator moves to the place of the node that it takes in: all its inputs exist
            // there.
            while let Some(next) = taken_in(graph, at, &readers, &shapes) {
                removed[at] = true;
                next.also.iter().for_each(|&node| removed[node] = true);
                at = next.place;
                removed[at] = false;
                graph.nodes[at] = merged(graph, next)?;
            }
        }
        graph.remove(&removed);
        Ok(())
    }
}

/// The shape of each value, with a name for every unknown dimension. An operator that keeps a size
/// keeps its name, so equal names mean equal sizes.
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

/// Names the unknown dimensions of value `number`.
fn name_dims(info: &mut Option<ValueInfo>, number: usize) {
    let Some(shape) = info.as_mut().and_then(|info| info.ty.shape.as_mut()) else { return };
    for (axis, dim) in shape.0.iter_mut().enumerate() {
        if *dim == Dim::Unknown {
            *dim = Dim::Symbol(format!("{number}.{axis} of a value").into());
        }
    }
}

/// An operator that takes in the nodes after it.
struct Taken {
    /// The node of the operator.
    from: usize,
    absorbed: Absorbed,
    /// The input that the operator reads in addition.
    added: Added,
    /// The node that the operator replaces.
    place: usize,
    /// Other nodes that are no longer needed.
    also: Vec<usize>,
}

enum Added {
    Nothing,
    Value(ValueId),
    Row(Tensor),
}

/// The node in the place of the one that was taken in.
fn merged(graph: &mut Graph, taken: Taken) -> Result<Node> {
    let from = graph.nodes[taken.from].clone();
    let mut inputs = from.inputs;
    if let Some(input) = taken.absorbed.input {
        let added = match taken.added {
            Added::Nothing => None,
            Added::Value(id) => Some(id),
            Added::Row(row) => Some(graph.add_constant(format!("{}.row", from.name), row)),
        };
        inputs.resize(inputs.len().max(input + 1), None);
        inputs[input] = added;
    }
    let outputs = graph.nodes[taken.place].outputs.clone();
    Ok(Node { op: taken.absorbed.op, inputs, outputs, name: from.name, op_type: from.op_type })
}

/// The nodes after the node at `index`, if its operator can take them in.
fn taken_in(
    graph: &Graph,
    index: usize,
    readers: &Readers,
    shapes: &[Option<SymShape>],
) -> Option<Taken> {
    let node = &graph.nodes[index];
    let [Some(out)] = *node.outputs.as_slice() else { return None };
    if readers.is_output(out) {
        return None;
    }
    let given = graph.infos(node);
    let taken = |following: &Following<'_>, added, place, also| {
        let absorbed = node.op.absorbing(&given, following)?;
        Some(Taken { from: index, absorbed, added, place, also })
    };
    match *readers.nodes(out) {
        [next] => {
            let reader = &graph.nodes[next];
            if reader.inputs.first() == Some(&Some(out))
                && let Some(activation) = reader.op.activation(&graph.infos(reader))
            {
                return taken(&Following::Activation(activation), Added::Nothing, next, vec![]);
            }
            let other = addend(reader, out)?;
            if let Some(row) = row(graph, other, out) {
                return taken(&Following::Row(&row), Added::Row(row.clone()), next, vec![]);
            }
            if !is_alike(graph, other, out, shapes) {
                return None;
            }
            taken(&Following::Residual, Added::Value(other), next, vec![])
        }
        [a, b] => {
            let (activation, gate) = gated(graph, out, a, b, readers)?;
            let place = if gate == a { b } else { a };
            taken(&Following::Activation(activation), Added::Nothing, place, vec![gate])
        }
        _ => None,
    }
}

/// The other value that a node adds to `x`.
fn addend(node: &Node, x: ValueId) -> Option<ValueId> {
    if node.op.arithmetic() != Some(BinaryKind::Add) {
        return None;
    }
    match node.inputs.as_slice() {
        [Some(a), Some(b)] if *a == x && *b != x => Some(*b),
        [Some(a), Some(b)] if *b == x && *a != x => Some(*a),
        _ => None,
    }
}

/// A constant as a row with one f32 for each position of the last axis of `x`, if it broadcasts
/// like that and has no more axes than `x`.
fn row(graph: &Graph, id: ValueId, x: ValueId) -> Option<Tensor> {
    let tensor = graph.constant(id).filter(|t| t.dtype() == DType::F32)?;
    let dims = tensor.shape().dims();
    let (n, others) = dims.split_last()?;
    let fits = others.iter().all(|&d| d == 1) && dims.len() <= graph.info(x)?.rank()?;
    if fits { tensor.reshape([*n]).ok() } else { None }
}

/// Whether a value is no constant, and surely has the dtype and shape of another: dimensions that
/// are not known to be equal might broadcast.
fn is_alike(graph: &Graph, id: ValueId, x: ValueId, shapes: &[Option<SymShape>]) -> bool {
    let shape = |id: ValueId| shapes.get(id.0).and_then(Option::as_ref);
    let (Some(mine), Some(theirs)) = (shape(x), shape(id)) else { return false };
    let dtype = |id: ValueId| graph.info(id).map(|info| info.ty.dtype);
    mine == theirs
        && !mine.0.contains(&Dim::Unknown)
        && dtype(id) == Some(DType::F32)
        && dtype(x) == Some(DType::F32)
        && graph.constant(id).is_none()
}

/// The activation `x · gate(x)` that two readers of `x` compute, and which of them is the gate.
fn gated(
    graph: &Graph,
    x: ValueId,
    a: usize,
    b: usize,
    readers: &Readers,
) -> Option<(Activation, usize)> {
    for (gate, product) in [(a, b), (b, a)] {
        let (node, reader) = (&graph.nodes[gate], &graph.nodes[product]);
        let Some(activation) = node.op.activation(&graph.infos(node)) else { continue };
        let Some(Some(gated)) = node.outputs.first() else { continue };
        let multiplies = reader.op.arithmetic() == Some(BinaryKind::Mul);
        let inputs = &reader.inputs;
        let both = *inputs == [Some(x), Some(*gated)] || *inputs == [Some(*gated), Some(x)];
        if !multiplies || !both || readers.only(*gated) != Some(product) {
            continue;
        }
        match activation {
            Activation::Sigmoid => return Some((Activation::Silu, gate)),
            Activation::HardSigmoid { alpha, beta }
                if (alpha - 1. / 6.).abs() < 1e-6 && (beta - 0.5).abs() < 1e-6 =>
            {
                return Some((Activation::HardSwish, gate));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::dead_code::DeadCodeElimination;
    use crate::passes::preparation::Preparation;
    use crate::passes::tests::graph_of;
    use crate::{GraphBuilder, Session, SessionOptions};
    use lgp_memory::{SymShape, Tensor, TensorType};

    fn ty(last: usize) -> TensorType {
        let dims = vec![Dim::Symbol("n".into()), Dim::Known(last)];
        TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) }
    }

    fn block(wide: bool) -> Result<GraphBuilder> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(2));
        let w = g.initializer("w", Tensor::from_slice([2, 2], &[1f32, -2., 3., 4.])?);
        let dims: &[usize] = if wide { &[1, 2] } else { &[2] };
        let bias = g.initializer("bias", Tensor::from_slice(dims, &[0.5f32, -0.5])?);
        let y = g.node("MatMul", &[x, w], []);
        let y = g.node("Add", &[bias, y], []);
        let y = g.node("Add", &[y, x], []);
        let y = g.node("Relu", &[y], []);
        g.output("y", y, ty(2));
        Ok(g)
    }

    #[test]
    fn bias_residual_and_activation_are_the_products() -> Result<()> {
        for wide in [false, true] {
            let mut graph = graph_of(block(wide)?)?;
            graph.infer()?;
            Preparation { on_device: false }.run(&mut graph)?;
            Epilogues.run(&mut graph)?;
            DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), 1);
            let session = Session::new(&block(wide)?.finish()?, SessionOptions::with_threads(1))?;
            let x = Tensor::from_slice([1, 2], &[1f32, 1.])?;
            let y = session.run(&[("x", x.view())])?;
            // 1 + 3 + 0.5 + 1 and -2 + 4 - 0.5 + 1.
            assert_eq!(y[0].tensor.as_slice::<f32>()?, [5.5f32, 2.5]);
        }
        Ok(())
    }

    #[test]
    fn a_product_that_others_read_stays() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(2));
        let w = g.initializer("w", Tensor::from_slice([2, 2], &[1f32, -2., 3., 4.])?);
        let y = g.node("MatMul", &[x, w], []);
        let z = g.node("Relu", &[y], []);
        g.output("y", y, ty(2));
        g.output("z", z, ty(2));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        Preparation { on_device: false }.run(&mut graph)?;
        Epilogues.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 2);
        Ok(())
    }
}
