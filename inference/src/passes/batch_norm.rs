//! Folds a batch normalisation into the convolution before it: with known statistics it is a
//! scale and a shift per output channel, which the weight and the bias can carry.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{BatchNorm, Conv};
use lgp_memory::{DType, Tensor};

#[derive(Debug)]
pub(crate) struct BatchNormFolding;

impl Pass for BatchNormFolding {
    fn name(&self) -> &'static str {
        "batch-norm-folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let uses = graph.uses();
        let producers = graph.producers();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            let Some(epsilon) = graph.op::<BatchNorm>(index).map(|bn| bn.epsilon) else { continue };
            let conv = graph.nodes[index]
                .inputs
                .first()
                .copied()
                .flatten()
                .filter(|x| uses[x.0] == 1)
                .and_then(|x| producers[x.0])
                .filter(|&p| graph.op::<Conv>(p).is_some());
            let Some(conv) = conv else { continue };
            let Some((weight, bias)) = folded(graph, conv, index, epsilon)? else { continue };
            let name = graph.nodes[index].name.clone();
            let weight = graph.add_constant(format!("{name}.weight"), weight);
            let bias = graph.add_constant(format!("{name}.bias"), bias);
            let x = graph.nodes[conv].inputs[0];
            graph.nodes[conv].inputs = vec![x, Some(weight), Some(bias)];
            graph.nodes[conv].outputs = graph.nodes[index].outputs.clone();
            *removed = true;
        }
        let mut removed = removed.into_iter();
        graph.nodes.retain(|_| !removed.next().unwrap_or(false));
        Ok(())
    }
}

/// Weight and bias that do both nodes' work, if everything they follow from is known.
fn folded(
    graph: &Graph,
    conv: usize,
    batch_norm: usize,
    epsilon: f32,
) -> Result<Option<(Tensor, Tensor)>> {
    let floats = |id: Option<&Option<ValueId>>| {
        id.copied().flatten().and_then(|id| graph.constant(id)).filter(|t| t.dtype() == DType::F32)
    };
    let conv = &graph.nodes[conv].inputs;
    let norm = &graph.nodes[batch_norm].inputs;
    let (Some(weight), [Some(scale), Some(shift), Some(mean), Some(variance)]) =
        (floats(conv.get(1)), [1, 2, 3, 4].map(|i| floats(norm.get(i))))
    else {
        return Ok(None);
    };
    let channels = weight.shape().first().copied().unwrap_or(0);
    let bias = match conv.get(2) {
        Some(Some(_)) => match floats(conv.get(2)) {
            Some(bias) => bias.clone(),
            None => return Ok(None),
        },
        _ => Tensor::zeros(DType::F32, [channels])?,
    };
    let sized = [scale, shift, mean, variance, &bias].iter().all(|t| t.len() == channels);
    if channels == 0 || !sized {
        return Ok(None);
    }
    let (scale, shift) = (scale.as_slice::<f32>()?, shift.as_slice::<f32>()?);
    let (mean, variance) = (mean.as_slice::<f32>()?, variance.as_slice::<f32>()?);
    // In double precision, so that folding costs one rounding.
    let factors: Vec<f64> = scale
        .iter()
        .zip(variance)
        .map(|(&s, &v)| f64::from(s) / (f64::from(v) + f64::from(epsilon)).sqrt())
        .collect();
    let mut new_weight = weight.clone();
    let per_channel = weight.len() / channels;
    if per_channel > 0 {
        let rows = new_weight.as_mut_slice::<f32>()?.chunks_exact_mut(per_channel);
        for (row, factor) in rows.zip(&factors) {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * factor) as f32);
        }
    }
    let mut new_bias = bias;
    for (c, b) in new_bias.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        let centred = f64::from(*b) - f64::from(mean[c]);
        *b = (centred * factors[c] + f64::from(shift[c])) as f32;
    }
    Ok(Some((new_weight, new_bias)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{GraphBuilder, Value};

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
            BatchNormFolding.run(&mut graph)?;
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
        BatchNormFolding.run(&mut graph)?;
        assert_eq!(graph.nodes.len(), 3);
        Ok(())
    }
}
