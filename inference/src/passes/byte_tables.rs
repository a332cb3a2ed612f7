//! Makes one table of the operators through which a byte follows from one other byte, such as
//! `x · sigmoid(x)` of quantised values.
//!
//! Operators are known by their facts and tried on all 256 bytes, so any that works element by
//! element takes part.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ops::QLookup;
use lgp_compute::{AxisKind, Context, ValueInfo, launch};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct ByteTables;

impl Pass for ByteTables {
    fn name(&self) -> &'static str {
        "byte-tables"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let producers = graph.producers();
        let ctx = Context::new(1).with_isa(graph.options.isa);
        for index in 0..graph.nodes.len() {
            if let Some((op, x)) = table(graph, &producers, index, &ctx) {
                let node = &mut graph.nodes[index];
                (node.op, node.inputs) = (Arc::new(op), vec![Some(x)]);
            }
        }
        Ok(())
    }
}

/// The table that a node and those before it are together, and the value that it reads. Each input
/// is that value or a byte that follows from it.
fn table(
    graph: &Graph,
    producers: &[Option<usize>],
    index: usize,
    ctx: &Context,
) -> Option<(QLookup, ValueId)> {
    let node = &graph.nodes[index];
    let (_, to) = bytes(graph, node)?;
    let function = |id: &ValueId| {
        let before = &graph.nodes[producers[id.0]?];
        let [Some(x)] = before.inputs.as_slice() else { return None };
        bytes(graph, before).map(|(from, _)| (before, *x, from))
    };
    let inputs = node.inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
    let functions: Vec<_> = inputs.iter().map(function).collect();
    let (_, x, dtype) = functions.iter().flatten().next().copied()?;
    let same = |(id, function): (&ValueId, &Option<(&Node, ValueId, DType)>)| match function {
        Some((_, from, _)) => *from == x || *id == x,
        None => *id == x,
    };
    if !inputs.iter().zip(&functions).all(same) {
        return None;
    }
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let all = Tensor::from_bytes(dtype, [all.len()], &all).ok()?;
    let mut values = Vec::with_capacity(inputs.len());
    for (id, function) in inputs.iter().zip(&functions) {
        values.push(match function {
            Some((before, _, _)) if *id != x => of_all(before, ctx, &[&all])?,
            _ => all.clone(),
        });
    }
    let values: Vec<&Tensor> = values.iter().collect();
    let table = of_all(node, ctx, &values)?.as_bytes().try_into().ok()?;
    Some((QLookup { from: dtype, to, table: Box::new(table) }, x))
}

/// What a node makes of some bytes.
fn of_all(node: &Node, ctx: &Context, inputs: &[&Tensor]) -> Option<Tensor> {
    let views: Vec<Option<TensorView<'_>>> = inputs.iter().map(|x| Some(x.view())).collect();
    launch(&*node.op, ctx, &views).ok()?.into_iter().next()
}

/// The dtypes of a node's inputs and of its output, if these are bytes of one shape and each byte
/// of the output follows from those at its place.
fn bytes(graph: &Graph, node: &Node) -> Option<(DType, DType)> {
    let is_byte = |dtype: DType| matches!(dtype, DType::I8 | DType::U8);
    let [Some(out)] = node.outputs.as_slice() else { return None };
    let out = graph.info(*out)?.clone();
    let inputs: Vec<Option<&ValueInfo>> = graph.infos(node);
    let from = inputs.first().copied().flatten()?.ty.dtype;
    let shape = |info: &ValueInfo| info.ty.shape.clone();
    let dims = shape(&out)?;
    let alike = |info: &Option<&ValueInfo>| {
        info.is_some_and(|info| {
            let same = shape(info).as_ref() == Some(&dims);
            is_byte(info.ty.dtype) && info.constant.is_none() && same
        })
    };
    if !is_byte(out.ty.dtype) || dims.0.contains(&Dim::Unknown) || !inputs.iter().all(alike) {
        return None;
    }
    let (rank, to) = (dims.rank(), out.ty.dtype);
    let axes = node.op.axes(&inputs, &[out]);
    let each = |axis: usize| {
        axes.of_output(0, axis).is_some_and(|a| {
            let places = (0..inputs.len()).all(|input| a.in_input(input) == Some(axis));
            a.kind == AxisKind::Each && places
        })
    };
    (rank > 0 && (0..rank).all(each)).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::dead_code::DeadCodeElimination;
    use crate::passes::quantized::QuantizedFusion;
    use crate::passes::tests::{graph_of, type_of};

    /// `x · sigmoid(x)` between quantised values, where `other` multiplies another value instead.
    fn silu(other: bool) -> Result<Graph> {
        let mut g = GraphBuilder::new("g");
        let ty = type_of(DType::U8, &[Some(4), Some(64)]);
        let bytes = g.input("x", ty.clone());
        let more = g.input("more", ty.clone());
        let scale = g.initializer("scale", Tensor::scalar(0.05f32)?);
        let zero = g.initializer("zero", Tensor::scalar(100u8)?);
        let x = g.node("DequantizeLinear", &[bytes, scale, zero], []);
        let more = g.node("DequantizeLinear", &[more, scale, zero], []);
        let gate = g.node("Sigmoid", &[x], []);
        let gate = g.node("QuantizeLinear", &[gate, scale, zero], []);
        let gate = g.node("DequantizeLinear", &[gate, scale, zero], []);
        let y = g.node("Mul", &[if other { more } else { x }, gate], []);
        let y = g.node("QuantizeLinear", &[y, scale, zero], []);
        g.output("y", y, ty);
        let mut graph = graph_of(g)?;
        graph.infer()?;
        QuantizedFusion.run(&mut graph)?;
        DeadCodeElimination.run(&mut graph)?;
        Ok(graph)
    }

    #[test]
    fn functions_of_one_byte_are_one_table() -> Result<()> {
        let mut graph = silu(false)?;
        assert_eq!(graph.nodes.len(), 2, "a table and a product");
        let ctx = Context::new(1);
        let all: Vec<u8> = (0..=255).collect();
        let x = Tensor::from_bytes(DType::U8, [4, 64], &all)?;
        let gate = of_all(&graph.nodes[0], &ctx, &[&x]).expect("bytes");
        let want = of_all(&graph.nodes[1], &ctx, &[&x, &gate]).expect("bytes");
        ByteTables.run(&mut graph)?;
        DeadCodeElimination.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 1);
        assert!(graph.op::<QLookup>(0).is_some());
        let got = of_all(&graph.nodes[0], &ctx, &[&x]).expect("bytes");
        assert_eq!(got.as_bytes(), want.as_bytes());
        Ok(())
    }

    #[test]
    fn functions_of_two_bytes_stay() -> Result<()> {
        let mut graph = silu(true)?;
        ByteTables.run(&mut graph)?;
        assert!(graph.op::<QLookup>(1).is_none());
        assert_eq!(graph.nodes.len(), 2);
        Ok(())
    }
}
