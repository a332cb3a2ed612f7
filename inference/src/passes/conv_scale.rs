//! Folds constants that are added to, or multiplied with, a convolution's output into its weight
//! and bias, where there is one for all elements or one a channel.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{Binary, BinaryKind, Conv};
use lgp_memory::{DType, Tensor};

#[derive(Debug)]
pub(crate) struct ConvScaleFolding;

impl Pass for ConvScaleFolding {
    fn name(&self) -> &'static str {
        "conv-scale-folding"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let uses = graph.uses();
        let mut producers = graph.producers();
        let mut removed = vec![false; graph.nodes.len()];
        for (index, removed) in removed.iter_mut().enumerate() {
            let Some((conv, affine)) = candidate(graph, index, &uses, &producers) else { continue };
            let Some((weight, bias)) = folded(graph, conv, &affine)? else { continue };
            let name = graph.nodes[index].name.clone();
            let weight = graph.add_constant(format!("{name}.weight"), weight);
            let bias = graph.add_constant(format!("{name}.bias"), bias);
            producers.resize(graph.values.len(), None);
            let x = graph.nodes[conv].inputs[0];
            let outputs = graph.nodes[index].outputs.clone();
            // The next one of a chain finds the convolution behind its output.
            outputs.iter().flatten().for_each(|id| producers[id.0] = Some(conv));
            graph.nodes[conv].inputs = vec![x, Some(weight), Some(bias)];
            graph.nodes[conv].outputs = outputs;
            *removed = true;
        }
        let mut removed = removed.into_iter();
        graph.nodes.retain(|_| !removed.next().unwrap_or(false));
        Ok(())
    }
}

/// `x · scale + shift`, each one value or one a channel.
struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

/// The convolution whose output alone the node changes, and how.
fn candidate(
    graph: &Graph,
    index: usize,
    uses: &[usize],
    producers: &[Option<usize>],
) -> Option<(usize, Affine)> {
    let kind = graph.op::<Binary>(index)?.kind;
    let (&[Some(a), Some(b)], [Some(_)]) =
        (graph.nodes[index].inputs.as_slice(), graph.nodes[index].outputs.as_slice())
    else {
        return None;
    };
    let conv = |id: ValueId| {
        let conv = producers.get(id.0).copied().flatten()?;
        (uses.get(id.0) == Some(&1) && graph.op::<Conv>(conv).is_some()).then_some((conv, id))
    };
    let ((conv, x), other, turned) = match (conv(a), conv(b)) {
        (Some(found), _) => (found, b, false),
        (None, Some(found)) => (found, a, true),
        (None, None) => return None,
    };
    let values = per_channel(graph, x, other)?;
    let negative = || values.iter().map(|v| -v).collect();
    let one = || vec![1.];
    let (scale, shift) = match (kind, turned) {
        (BinaryKind::Add, _) => (one(), values),
        (BinaryKind::Sub, false) => (one(), negative()),
        (BinaryKind::Sub, true) => (vec![-1.], values),
        (BinaryKind::Mul, _) => (values, vec![0.]),
        (BinaryKind::Div, false) => (values.iter().map(|v| 1. / v).collect(), vec![0.]),
        _ => return None,
    };
    let finite = scale.iter().chain(&shift).all(|v| v.is_finite());
    finite.then_some((conv, Affine { scale, shift }))
}

/// A constant that broadcasts over everything but the channels of `x`.
fn per_channel(graph: &Graph, x: ValueId, constant: ValueId) -> Option<Vec<f64>> {
    let rank = graph.info(x)?.ty.shape.as_ref()?.rank();
    let tensor = graph.constant(constant).filter(|t| t.dtype() == DType::F32)?;
    let dims = tensor.shape().dims();
    // Of the axes counted from the back, only that of the channels may be longer than 1.
    let channels = rank.checked_sub(2)?;
    let fits = dims.len() <= rank
        && dims.iter().rev().enumerate().all(|(axis, &n)| n == 1 || axis == channels);
    let values = tensor.as_slice::<f32>().ok()?;
    (fits && !values.is_empty()).then(|| values.iter().map(|&v| f64::from(v)).collect())
}

/// Weight and bias that do the constant's work too, if they are known, and finite afterwards.
fn folded(graph: &Graph, conv: usize, affine: &Affine) -> Result<Option<(Tensor, Tensor)>> {
    let constant = |i: usize| {
        let id = graph.nodes[conv].inputs.get(i).copied().flatten()?;
        graph.constant(id).filter(|t| t.dtype() == DType::F32)
    };
    let Some(weight) = constant(1) else { return Ok(None) };
    let channels = weight.shape().first().copied().unwrap_or(0);
    let bias = match graph.nodes[conv].inputs.get(2) {
        Some(Some(_)) => constant(2).cloned(),
        _ => Some(Tensor::zeros(DType::F32, [channels])?),
    };
    let Some(mut bias) = bias.filter(|b| b.len() == channels && channels > 0) else {
        return Ok(None);
    };
    let sized = |values: &[f64]| values.len() == 1 || values.len() == channels;
    if !sized(&affine.scale) || !sized(&affine.shift) {
        return Ok(None);
    }
    let at = |values: &[f64], c: usize| values[if values.len() == 1 { 0 } else { c }];
    let mut weight = weight.clone();
    let row = weight.len() / channels;
    if row > 0 && affine.scale.iter().any(|&s| s != 1.) {
        for (c, row) in weight.as_mut_slice::<f32>()?.chunks_exact_mut(row).enumerate() {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * at(&affine.scale, c)) as f32);
        }
    }
    for (c, b) in bias.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        *b = (f64::from(*b) * at(&affine.scale, c) + at(&affine.shift, c)) as f32;
    }
    let finite =
        |t: &Tensor| t.as_slice::<f32>().is_ok_and(|values| values.iter().all(|v| v.is_finite()));
    Ok((finite(&weight) && finite(&bias)).then_some((weight, bias)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};

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
        ConvScaleFolding.run(&mut graph)?;
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
        // Twice this is no f32, though what comes in may be small.
        assert_eq!(folded_by("Mul", false, &[], &[3e38])?.nodes.len(), 3);
        Ok(())
    }
}
