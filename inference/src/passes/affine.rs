//! Folds a factor and a shift after an operator, such as a batch normalisation with known
//! statistics, into the operator's constants, if these can hold them.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, node_error};

#[derive(Debug)]
pub(crate) struct AffineFolding;

impl Pass for AffineFolding {
    fn name(&self) -> &'static str {
        "affine-folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let uses = graph.uses();
        let mut producers = graph.producers();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            let node = &graph.nodes[index];
            let Some(affine) = node.op.affine(&graph.infos(node)) else { continue };
            let x = node.inputs.get(affine.x).copied().flatten();
            let Some(x) = x.filter(|x| uses.get(x.0) == Some(&1)) else { continue };
            let [Some(out)] = *node.outputs.as_slice() else { continue };
            let Some(before) = producers.get(x.0).copied().flatten() else { continue };
            let product = &graph.nodes[before];
            let folded = product.op.with_affine(&graph.infos(product), &affine);
            let Some(operands) = folded.map_err(|e| node_error(product, e))? else { continue };
            let mut product = product.clone();
            product.inputs = graph.bind(&product, operands, &[]);
            product.outputs = vec![Some(out)];
            graph.nodes[before] = product;
            // The next node of a chain finds the operator behind this output.
            producers.resize(graph.values.len(), None);
            producers[out.0] = Some(before);
            *removed = true;
        }
        graph.remove(&removed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{GraphBuilder, Value};
    use lgp_memory::Tensor;

    fn conv_and_norm(g: &mut GraphBuilder, bias: bool) -> Result<(Value, Value)> {
        let x = g.input("x", f32_type(&[None, Some(1), Some(2), Some(2)]));
        let w = g.initializer("w", Tensor::from_slice([2, 1, 1, 1], &[2f32, -1.])?);
        let mut inputs = vec![x, w];
        if bias {
            inputs.push(g.initializer("b", Tensor::from_slice([2], &[1f32, 5.])?));
        }
        let conv = g.node("Conv", &inputs, []);
        let mut channel = |name: &str, values: [f32; 2]| {
            Ok::<_, crate::Error>(g.initializer(name, Tensor::from_slice([2], &values)?))
        };
        let inputs = [
            conv,
            channel("scale", [3., 1.])?,
            channel("shift", [0.5, -0.5])?,
            channel("mean", [1., 2.])?,
            channel("variance", [3., 0.])?,
        ];
        Ok((conv, g.node("BatchNormalization", &inputs, [("epsilon", 1f32.into())])))
    }

    #[test]
    fn weight_and_bias_carry_scale_and_shift() -> Result<()> {
        // Factors are 3/√(3+1) = 1.5 and 1/√(0+1) = 1.
        for (bias, expected) in [(true, [0.5, 2.5]), (false, [-1., -2.5])] {
            let mut g = GraphBuilder::new("g");
            let (_, y) = conv_and_norm(&mut g, bias)?;
            g.output("y", y, f32_type(&[None, None, None, None]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            AffineFolding.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), 1);
            let input = |i: usize| graph.constant(graph.nodes[0].inputs[i].unwrap()).unwrap();
            assert_eq!(input(1).as_slice::<f32>()?, [3., -1.]);
            assert_eq!(input(2).as_slice::<f32>()?, expected);
            assert_eq!(graph.nodes[0].outputs, [Some(graph.outputs[0].1)]);
        }
        Ok(())
    }

    #[test]
    fn a_convolution_that_others_read_is_left_alone() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let (conv, y) = conv_and_norm(&mut g, true)?;
        let sum = g.node("Add", &[conv, y], []);
        g.output("y", sum, f32_type(&[None, None, None, None]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        AffineFolding.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 3);
        Ok(())
    }

    fn folded_by(op: &str, turned: bool, dims: &[usize], c: &[f32]) -> Result<Graph> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(1), None, None]));
        let w = g.initializer("w", Tensor::from_slice([2, 1, 1, 1], &[2f32, -1.])?);
        let b = g.initializer("b", Tensor::from_slice([2], &[1f32, 3.])?);
        let c = g.initializer("c", Tensor::from_slice(dims, c)?);
        let conv = g.node("Conv", &[x, w, b], []);
        let y = g.node(op, &if turned { [c, conv] } else { [conv, c] }, []);
        let z = g.node("Relu", &[y], []);
        g.output("y", z, f32_type(&[None, None, None, None]));
        let mut graph = graph_of(g)?;
        graph.infer()?;
        AffineFolding.run(&mut graph)?;
        Ok(graph)
    }

    #[test]
    fn weight_and_bias_carry_the_constant() -> Result<()> {
        let channel: &[usize] = &[2, 1, 1];
        for (op, turned, dims, c, weight, bias) in [
            ("Add", false, channel, &[10f32, 20.][..], [2f32, -1.], [11f32, 23.]),
            ("Add", true, &[1, 2, 1, 1], &[10., 20.], [2., -1.], [11., 23.]),
            ("Sub", false, &[], &[1.], [2., -1.], [0., 2.]),
            ("Sub", true, &[1], &[1.], [-2., 1.], [0., -2.]),
            ("Mul", true, channel, &[2., 3.], [4., -3.], [2., 9.]),
            ("Div", false, channel, &[2., 0.5], [1., -2.], [0.5, 6.]),
        ] {
            let graph = folded_by(op, turned, dims, c)?;
            assert_eq!(graph.nodes.len(), 2, "{op} {turned}");
            let input = |i: usize| graph.constant(graph.nodes[0].inputs[i].unwrap()).unwrap();
            assert_eq!(input(1).as_slice::<f32>()?, weight, "{op} {turned}");
            assert_eq!(input(2).as_slice::<f32>()?, bias, "{op} {turned}");
        }
        Ok(())
    }

    #[test]
    fn what_is_not_per_channel_stays() -> Result<()> {
        let square: &[usize] = &[2, 2];
        for (op, turned, dims, c) in [
            ("Add", false, square, &[1f32; 4][..]),
            ("Mul", false, &[2], &[1.; 2]),
            ("Add", false, &[1, 1, 1, 1, 1], &[1.]),
            ("Div", true, &[], &[1.]),
            ("Div", false, &[], &[0.]),
            ("Pow", false, &[], &[2.]),
        ] {
            assert_eq!(folded_by(op, turned, dims, c)?.nodes.len(), 3, "{op} {dims:?}");
        }
        // Doubling this number would be infinite in f32, though the inputs may be small.
        assert_eq!(folded_by("Mul", false, &[], &[3e38])?.nodes.len(), 3);
        Ok(())
    }
}
