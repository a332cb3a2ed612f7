//! Lets products with packed weights add their bias and a residual and apply an activation, while
//! the result is in the cache.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{Binary, BinaryKind, MatMulPacked, QMatMul, Unary};
use lgp_compute::{Activation, Op};
use lgp_memory::{DType, Dim};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct MatMulFusion;

impl Pass for MatMulFusion {
    fn name(&self) -> &'static str {
        "matmul-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let uses = graph.uses();
        let mut producers = graph.producers();
        let mut removed = vec![false; graph.nodes.len()];
        for index in 0..graph.nodes.len() {
            let Some((product, op, inputs)) = fused(graph, index, &uses, &producers)? else {
                continue;
            };
            // The product moves to its reader's place, where the residual is there, too.
            graph.nodes[index].name = graph.nodes[product].name.clone();
            graph.nodes[index].op = op.op();
            graph.nodes[index].inputs = inputs;
            removed[product] = true;
            for id in graph.nodes[product].outputs.iter().flatten() {
                producers[id.0] = None;
            }
        }
        let mut removed = removed.into_iter();
        graph.nodes.retain(|_| !removed.next().unwrap_or(false));
        Ok(())
    }
}

type Fused = (usize, Product, Vec<Option<ValueId>>);

/// A product that can take over what follows it.
#[derive(Clone)]
enum Product {
    Floats(MatMulPacked),
    Bytes(QMatMul),
}

impl Product {
    /// The product at a node, if it does not end in an activation yet.
    fn at(graph: &Graph, node: usize) -> Option<Self> {
        let plain = |activation| activation == Activation::None;
        if let Some(op) = graph.op::<MatMulPacked>(node) {
            return plain(op.activation).then(|| Self::Floats(op.clone()));
        }
        let op = graph.op::<QMatMul>(node)?;
        op.activation().is_some_and(plain).then(|| Self::Bytes(op.clone()))
    }

    fn with(self, activation: Activation) -> Self {
        match self {
            Self::Floats(op) => Self::Floats(MatMulPacked { activation, ..op }),
            Self::Bytes(op) => Self::Bytes(op.with_activation(activation)),
        }
    }

    /// Columns of a bias that the product can add.
    fn bias(&self, inputs: &[Option<ValueId>]) -> Option<usize> {
        match self {
            Self::Floats(op) => inputs[2].is_none().then_some(op.n),
            Self::Bytes(_) => None,
        }
    }

    fn op(self) -> Arc<dyn Op> {
        match self {
            Self::Floats(op) => Arc::new(op),
            Self::Bytes(op) => Arc::new(op),
        }
    }
}

/// The product that a node follows, and what both are together.
fn fused(
    graph: &mut Graph,
    index: usize,
    uses: &[usize],
    producers: &[Option<usize>],
) -> Result<Option<Fused>> {
    let product = |graph: &Graph, id: ValueId| {
        let node = producers[id.0].filter(|_| uses.get(id.0) == Some(&1))?;
        Some((node, Product::at(graph, node)?))
    };
    match graph.nodes[index].inputs.as_slice() {
        [Some(x)] => {
            let kind = graph.op::<Unary>(index).map(|op| op.kind);
            let activation = kind.and_then(Activation::from_unary);
            let (Some((node, op)), Some(activation)) = (product(graph, *x), activation) else {
                return Ok(None);
            };
            let inputs = graph.nodes[node].inputs.clone();
            Ok(Some((node, op.with(activation), inputs)))
        }
        &[Some(a), Some(b)] => {
            if graph.op::<Binary>(index).is_none_or(|op| op.kind != BinaryKind::Add) {
                return Ok(None);
            }
            for (x, other) in [(a, b), (b, a)] {
                let Some((node, op)) = product(graph, x) else { continue };
                let mut inputs = graph.nodes[node].inputs.clone();
                inputs.resize(4, None);
                let bias = op.bias(&inputs).filter(|&n| is_bias(graph, other, x, n));
                if let Some(n) = bias {
                    inputs[2] = Some(flat(graph, other, n)?);
                } else if inputs[3].is_none() && same_shape(graph, x, other) {
                    inputs[3] = Some(other);
                } else {
                    continue;
                }
                return Ok(Some((node, op, inputs)));
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Whether a value is a constant of `n` numbers along the last axis.
fn is_bias(graph: &Graph, id: ValueId, x: ValueId, n: usize) -> bool {
    let rank =
        graph.info(x).and_then(|info| info.ty.shape.as_ref()).map(lgp_memory::SymShape::rank);
    let (Some(tensor), Some(rank)) = (graph.constant(id), rank) else { return false };
    let dims = tensor.shape().dims();
    let row = dims.split_last().is_some_and(|(last, others)| {
        *last == n && others.iter().all(|&d| d == 1) && dims.len() <= rank
    });
    tensor.dtype() == DType::F32 && row
}

/// A bias as a vector.
fn flat(graph: &mut Graph, id: ValueId, n: usize) -> Result<ValueId> {
    let Some(tensor) = graph.constant(id).filter(|t| t.shape().rank() != 1) else { return Ok(id) };
    let tensor = tensor.clone().reshape([n])?;
    let name = format!("{}.flat", graph.values[id.0].name);
    Ok(graph.add_constant(name, tensor))
}

/// Whether two values certainly have the same shape and are f32.
fn same_shape(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    let (Some(a), Some(b)) = (graph.info(a), graph.info(b)) else { return false };
    let known = |info: &lgp_compute::ValueInfo| {
        info.ty.shape.as_ref().is_some_and(|s| s.0.iter().all(|d| *d != Dim::Unknown))
    };
    a.ty.dtype == DType::F32 && a.ty == b.ty && known(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::dead_code::DeadCodeElimination;
    use crate::passes::matmul_packing::MatMulPacking;
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
            MatMulPacking.run(&mut graph)?;
            MatMulFusion.run(&mut graph)?;
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
        MatMulPacking.run(&mut graph)?;
        MatMulFusion.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 2);
        Ok(())
    }
}
