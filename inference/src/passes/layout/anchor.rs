//! Convolutions on channels-last images, with their weights packed: what makes the layout pay.

use super::{Converted, Input, Step, rank_of};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, ValueId};
use crate::session::Precision;
use lgp_compute::ops::{Conv, ConvGeometry, ConvHints, ConvNhwc};
use lgp_memory::{DType, Dim, Tensor};
use std::sync::Arc;

/// The geometry, the weight and the hints of a two-dimensional f32 convolution whose weight is
/// known; `None` for any other node.
fn parts<'a>(graph: &'a Graph, node: &Node) -> Option<(ConvGeometry, &'a Tensor, ConvHints)> {
    let any: &dyn std::any::Any = &*node.op;
    let op = any.downcast_ref::<Conv>()?;
    let x = node.inputs.first().copied().flatten()?;
    let weight = graph.constant(node.inputs.get(1).copied().flatten()?)?;
    let [maps, per_group, kh, kw] = *weight.shape().dims() else { return None };
    let usable = weight.dtype() == DType::F32 && rank_of(graph, x) == Some(4);
    if !usable || weight.is_empty() || op.group == 0 || !maps.is_multiple_of(op.group) {
        return None;
    }
    let pair = |values: &[usize]| match *values {
        [] => Some([1, 1]),
        [a, b] => Some([a, b]),
        _ => None,
    };
    let geometry = ConvGeometry {
        kernel: [kh, kw],
        strides: pair(&op.strides)?,
        dilations: pair(&op.dilations)?,
        pads: op.pads.clone(),
        group: op.group,
        channels: per_group.checked_mul(op.group)?,
        maps,
    };
    let dims = graph.info(x)?.ty.shape.as_ref()?.0.as_slice();
    let known = |i: usize| dims.get(i).and_then(Dim::known);
    let input = known(2).zip(known(3)).map(|(h, w)| [h, w]);
    let bf16 = graph.options.precision == Precision::Fast
        && lgp_compute::Simd::detect(graph.options.isa).bf16();
    Some((geometry, weight, ConvHints { batch: known(0), input, bf16 }))
}

/// Whether the node is such a convolution.
pub(super) fn is_anchor(graph: &Graph, node: &Node) -> bool {
    parts(graph, node).is_some()
}

/// Products that one output element of a convolution sums up.
pub(super) fn depth(graph: &Graph, node: &Node) -> usize {
    parts(graph, node).map_or(0, |(_, weight, _)| {
        weight.shape().iter().skip(1).fold(1, |n, &d| n.saturating_mul(d))
    })
}

/// The convolution on channels-last images.
///
/// # Errors
/// Out of memory for the packed weight.
pub(super) fn anchor(graph: &Graph, node: &Node) -> Result<Converted> {
    let (Some((geometry, weight, hints)), Some(Some(x))) =
        (parts(graph, node), node.inputs.first())
    else {
        return Err(Error::graph(format!("node '{}' is no convolution of images", node.name)));
    };
    let (op, packed) = ConvNhwc::pack(geometry, &weight.view(), hints)
        .map_err(|e| crate::graph::node_error(node, e))?;
    let bias: Option<ValueId> = node.inputs.get(2).copied().flatten();
    let mut inputs = vec![Input::ChannelsLast(*x), Input::Constant(packed)];
    inputs.extend(bias.map(Input::AsItIs));
    Ok(Converted { steps: vec![Step { op: Arc::new(op), inputs }], channels_last: vec![true] })
}
