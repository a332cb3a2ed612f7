//! Packs the constant right sides of matrix products when the model is loaded, as kernels read
//! them.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::Context;
use lgp_compute::ops::{Gemm, MatMul, MatMulPacked};
use lgp_memory::{DType, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

use crate::session::Precision;

#[derive(Debug)]
pub(crate) struct MatMulPacking;

impl Pass for MatMulPacking {
    fn name(&self) -> &'static str {
        "matmul-packing"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let ctx = Context::new(1).with_isa(graph.options.isa);
        let fast = graph.options.precision == Precision::Fast;
        // Weights that several products share are packed once.
        let mut uses = graph.uses();
        let mut packed: HashMap<(ValueId, bool), (MatMulPacked, ValueId)> = HashMap::new();
        for index in 0..graph.nodes.len() {
            let Some(product) = packable(graph, index)? else { continue };
            let Product { a, b, transposed, bias } = product;
            let (op, weight) = match packed.get(&(b, transposed)) {
                Some(known) => known.clone(),
                None => {
                    let Some(weight) = graph.constant(b) else { continue };
                    let (op, tensor) =
                        MatMulPacked::pack(&ctx, &weight.view(), transposed, fast)
                            .map_err(|e| crate::graph::node_error(&graph.nodes[index], e))?;
                    let name = format!("{}.packed", graph.values[b.0].name);
                    let weight = graph.add_constant(name, tensor);
                    packed.insert((b, transposed), (op.clone(), weight));
                    (op, weight)
                }
            };
            let mut inputs = vec![Some(a), Some(weight)];
            if let Some(bias) = bias {
                let name = format!("{}.bias", graph.nodes[index].name);
                inputs.push(Some(graph.add_constant(name, bias)));
            }
            let node = &mut graph.nodes[index];
            *node = Node { op: Arc::new(op), inputs, ..node.clone() };
            graph.release(b, &mut uses);
        }
        Ok(())
    }
}

/// A product whose right side can be packed.
struct Product {
    a: ValueId,
    b: ValueId,
    transposed: bool,
    bias: Option<Tensor>,
}

fn packable(graph: &Graph, index: usize) -> Result<Option<Product>> {
    let inputs = graph.nodes[index].inputs.as_slice();
    let [Some(a), Some(b), rest @ ..] = inputs else { return Ok(None) };
    let (a, b) = (*a, *b);
    let is_f32 = graph.info(a).is_some_and(|info| info.ty.dtype == DType::F32);
    let weight = graph.constant(b).filter(|w| w.dtype() == DType::F32 && w.shape().rank() == 2);
    let (true, Some(weight)) = (is_f32, weight) else { return Ok(None) };
    if graph.op::<MatMul>(index).is_some() {
        return Ok(Some(Product { a, b, transposed: false, bias: None }));
    }
    let Some(gemm) = graph.op::<Gemm>(index) else { return Ok(None) };
    if gemm.trans_a || gemm.alpha != 1. {
        return Ok(None);
    }
    let n = weight.shape()[usize::from(!gemm.trans_b)];
    let bias = match rest.first().copied().flatten() {
        None => None,
        // Not read, as BLAS has it: 0 times infinity would be NaN.
        Some(_) if gemm.beta == 0. => None,
        Some(c) => {
            let Some(row) = graph.constant(c).and_then(|c| row(c, n)) else { return Ok(None) };
            let row: Vec<f32> = row.iter().map(|x| x * gemm.beta).collect();
            Some(Tensor::from_slice([n], &row)?)
        }
    };
    Ok(Some(Product { a, b, transposed: gemm.trans_b, bias }))
}

/// The elements of a constant that is the same in every row of `n`.
fn row(c: &Tensor, n: usize) -> Option<Vec<f32>> {
    let data = c.as_slice::<f32>().ok()?;
    match c.shape().dims() {
        [] | [1] | [1, 1] => Some(vec![*data.first()?; n]),
        [m] | [1, m] if *m == n => Some(data.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};

    #[test]
    fn constant_weights_are_packed_once() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let w = g.initializer("w", Tensor::zeros(DType::F32, [4, 4])?);
        let c = g.initializer("c", Tensor::from_slice([1], &[2f32])?);
        let y = g.node("MatMul", &[x, w], []);
        let y = g.node("Gemm", &[y, w, c], [("beta", 3f32.into())]);
        let z = g.node("MatMul", &[w, y], []);
        g.output("y", y, f32_type(&[None, Some(4)]));
        g.output("z", z, f32_type(&[Some(4), Some(4)]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        MatMulPacking.run(&mut graph)?;
        let names: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(names, ["MatMulPacked", "MatMulPacked", "MatMul"]);
        assert_eq!(graph.nodes[0].inputs[1], graph.nodes[1].inputs[1]);
        let bias = graph.nodes[1].inputs[2].and_then(|id| graph.constant(id));
        assert_eq!(bias.map(|b| b.as_slice::<f32>()), Some(Ok(&[6f32; 4][..])));
        Ok(())
    }
}
