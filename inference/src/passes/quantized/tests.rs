//! Compares quantised graphs before and after they run on integers.

use super::QuantizedFusion;
use crate::graph::Graph;
use crate::passes::Pass;
use crate::passes::constant_folding::ConstantFolding;
use crate::passes::dead_code::DeadCodeElimination;
use crate::passes::dynamic_products::DynamicProducts;
use crate::passes::epilogue::Epilogues;
use crate::passes::tests::{f32_type, graph_of};
use crate::{GraphBuilder, Result, Value};
use lgp_memory::Tensor;

fn names(graph: &mut Graph) -> Result<Vec<&'static str>> {
    ConstantFolding { keep_bytes: true }.run(graph)?;
    let passes: [&dyn Pass; 4] =
        [&QuantizedFusion, &DynamicProducts, &Epilogues, &DeadCodeElimination];
    passes.iter().try_for_each(|pass| pass.run(graph))?;
    Ok(graph.nodes.iter().map(|n| n.op.name()).collect())
}

struct Net {
    g: GraphBuilder,
    scale: Value,
    zero: Value,
}

impl Net {
    fn new() -> Result<Self> {
        let mut g = GraphBuilder::new("g");
        let scale = g.initializer("scale", Tensor::scalar(0.1f32)?);
        let zero = g.initializer("zero", Tensor::scalar(3u8)?);
        Ok(Self { g, scale, zero })
    }

    /// Quantises a value and dequantises it again.
    fn through(&mut self, x: Value) -> Value {
        let q = self.g.node("QuantizeLinear", &[x, self.scale, self.zero], []);
        self.g.node("DequantizeLinear", &[q, self.scale, self.zero], [])
    }

    fn weight(&mut self, dims: &[usize]) -> Result<Value> {
        let n: usize = dims.iter().product();
        let w = self.g.initializer("w", Tensor::from_slice(dims.to_vec(), &vec![1i8; n])?);
        let scale = self.g.initializer("ws", Tensor::scalar(0.5f32)?);
        Ok(self.g.node("DequantizeLinear", &[w, scale], []))
    }
}

#[test]
fn images_stay_channels_last_between_operators() -> Result<()> {
    let mut net = Net::new()?;
    let x = net.g.input("x", f32_type(&[None, Some(4), Some(5), Some(5)]));
    let x = net.through(x);
    let w = net.weight(&[4, 4, 1, 1])?;
    let conv = net.g.node("Conv", &[x, w], []);
    let relu = net.g.node("Relu", &[conv], []);
    let y = net.through(relu);
    let pool = net.g.node("GlobalAveragePool", &[y], []);
    let y = net.through(pool);
    net.g.output("y", y, f32_type(&[None, Some(4), Some(1), Some(1)]));
    let mut graph = graph_of(net.g)?;
    assert_eq!(
        names(&mut graph)?,
        [
            "QuantizeLinear",
            "Transpose",
            "QConvNhwc",
            "QGlobalAveragePoolNhwc",
            "Transpose",
            "DequantizeLinear"
        ]
    );
    Ok(())
}

#[test]
fn what_others_read_too_stays() -> Result<()> {
    let mut net = Net::new()?;
    let x = net.g.input("x", f32_type(&[None, Some(4)]));
    let x = net.through(x);
    let w = net.weight(&[4, 4])?;
    let product = net.g.node("MatMul", &[x, w], []);
    let y = net.through(product);
    net.g.output("y", y, f32_type(&[None, Some(4)]));
    net.g.output("product", product, f32_type(&[None, Some(4)]));
    let mut graph = graph_of(net.g)?;
    assert!(!names(&mut graph)?.contains(&"QMatMul"));
    Ok(())
}

#[test]
fn products_quantised_on_the_way_are_one_operator() -> Result<()> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", f32_type(&[None, Some(4)]));
    let w = g.initializer("w", Tensor::from_slice([4, 2], &[1i8; 8])?);
    let scale = g.initializer("s", Tensor::from_slice([1], &[0.5f32])?);
    let bias = g.initializer("b", Tensor::from_slice([2], &[0.5f32, 1.])?);
    let [q, dynamic, zero] = g.node_with_outputs("DynamicQuantizeLinear", &[x], []);
    let sums = g.node("MatMulInteger", &[q, w, zero], []);
    let sums = g.node("Cast", &[sums], [("to", 1.into())]);
    let scales = g.node("Mul", &[dynamic, scale], []);
    let product = g.node("Mul", &[sums, scales], []);
    let y = g.node("Add", &[bias, product], []);
    g.output("y", y, f32_type(&[None, Some(2)]));
    assert_eq!(names(&mut graph_of(g)?)?, ["DynamicQuantizeLinear", "QMatMul"]);
    Ok(())
}

#[test]
fn a_bias_of_more_dimensions_is_not_the_products() -> Result<()> {
    for (dims, name) in [(&[5usize][..], "QMatMul"), (&[1, 5], "QMatMul"), (&[1, 1, 5], "MatMul")] {
        let mut net = Net::new()?;
        let x = net.g.input("x", f32_type(&[Some(2), Some(4)]));
        let x = net.through(x);
        let w = net.weight(&[4, 5])?;
        let bias = net.g.initializer("bias", Tensor::from_slice(dims.to_vec(), &[1f32; 5])?);
        let product = net.g.node("MatMul", &[x, w], []);
        let sum = net.g.node("Add", &[product, bias], []);
        let y = net.through(sum);
        net.g.output("y", y, f32_type(&vec![None; dims.len().max(2)]));
        let mut graph = graph_of(net.g)?;
        graph.infer()?;
        assert!(names(&mut graph)?.contains(&name), "{dims:?}");
    }
    Ok(())
}

#[test]
fn operators_that_hold_data_are_not_the_same() -> Result<()> {
    let mut net = Net::new()?;
    let x = net.g.input("x", f32_type(&[None]));
    let x = net.through(x);
    let [a, b] = ["Sigmoid", "Tanh"].map(|op| {
        let y = net.g.node(op, &[x], []);
        net.through(y)
    });
    let y = net.g.node("Sub", &[a, b], []);
    net.g.output("y", y, f32_type(&[None]));
    let mut graph = graph_of(net.g)?;
    let lookups = |names: &[&str]| names.iter().filter(|n| **n == "QLookup").count();
    assert_eq!(lookups(&names(&mut graph)?), 2);
    crate::passes::common::CommonSubexpressions.run(&mut graph)?;
    let left: Vec<_> = graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(lookups(&left), 2);
    Ok(())
}

/// Sums have steps of 0.05 here, and outputs steps of 0.1.
#[test]
fn a_bias_between_the_steps_of_the_sums_stays_in_floats() -> Result<()> {
    for (bias, fused) in [(0.05f32, true), (0.102, true), (0.07, false)] {
        for op in ["Conv", "Gemm"] {
            let mut net = Net::new()?;
            let dims = if op == "Conv" { vec![4, 4, 1, 1] } else { vec![4, 4] };
            let ty = f32_type(&dims.iter().map(|&d| Some(d)).collect::<Vec<_>>());
            let x = net.g.input("x", ty.clone());
            let x = net.through(x);
            let w = net.weight(&dims)?;
            let b = net.g.initializer("b", Tensor::from_slice([4], &[bias; 4])?);
            let y = net.g.node(op, &[x, w, b], []);
            let y = net.through(y);
            net.g.output("y", y, ty);
            let names = names(&mut graph_of(net.g)?)?;
            let integer = names.iter().any(|name| ["QConvNhwc", "QMatMul"].contains(name));
            assert_eq!(integer, fused, "{op} with {bias}: {names:?}");
        }
    }
    Ok(())
}
