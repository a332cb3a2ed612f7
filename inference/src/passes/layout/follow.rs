//! How operators work on channels-last tensors: the same function of the same elements, with
//! axes renumbered and constants re-laid.

use super::{CHANNELS_FIRST, Converted, Input, Step, channels_last_constant, rank_of};
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ops::{
    BatchNorm, Binary, BinaryKind, Cast, Clip, Concat, GlobalPool, GlobalPoolNhwc, Pad, Pool,
    PoolNhwc, Reduce, Resize, Slice, Softmax, Split, Unary,
};
use lgp_memory::{DType, Tensor};
use std::sync::Arc;

/// A node on channels-last tensors, if its operator has such a form and all inputs fit.
pub(super) fn follower(graph: &Graph, node: &Node) -> Option<Converted> {
    let x = node.inputs.first().copied().flatten().filter(|&x| rank_of(graph, x) == Some(4));
    let any: &dyn std::any::Any = &*node.op;
    if let Some(op) = any.downcast_ref::<Binary>() {
        return binary(graph, node, op);
    }
    if let Some(op) = any.downcast_ref::<Concat>() {
        return concat(graph, node, op);
    }
    // What remains has one tensor of rank 4 and parameters.
    let x = x.filter(|&x| graph.constant(x).is_none())?;
    if any.is::<Unary>() || any.is::<Clip>() || any.is::<Cast>() {
        return one(Arc::clone(&node.op), x, parameters(node));
    }
    if let Some(op) = any.downcast_ref::<Pool>() {
        return pool(graph, node, op, x);
    }
    if let Some(op) = any.downcast_ref::<GlobalPool>() {
        return one_f32(graph, Arc::new(GlobalPoolNhwc { kind: op.kind }), x);
    }
    if let Some(op) = any.downcast_ref::<BatchNorm>() {
        return batch_norm(graph, node, op, x);
    }
    if let Some(op) = any.downcast_ref::<Softmax>() {
        // Over several axes at once their order matters.
        let axis = axis_of(op.axis).filter(|_| !op.flatten)?;
        return one(Arc::new(Softmax { axis, ..op.clone() }), x, []);
    }
    if let Some(op) = any.downcast_ref::<Reduce>() {
        return reduce(graph, node, op, x);
    }
    if let Some(op) = any.downcast_ref::<Resize>() {
        let axes = op.axes.clone().unwrap_or_else(|| vec![0, 1, 2, 3]);
        let axes = axes.into_iter().map(axis_of).collect::<Option<_>>()?;
        return one(Arc::new(Resize { axes: Some(axes), ..op.clone() }), x, parameters(node));
    }
    if let Some(op) = any.downcast_ref::<Pad>() {
        return pad(graph, node, op, x);
    }
    if let Some(op) = any.downcast_ref::<Split>() {
        let op = Split { axis: axis_of(op.axis)?, ..op.clone() };
        let mut split = one(Arc::new(op), x, parameters(node))?;
        split.channels_last = vec![true; node.outputs.len()];
        return Some(split);
    }
    any.downcast_ref::<Slice>().and_then(|op| slice(graph, node, op, x))
}

/// One operator on one tensor.
fn one(
    op: Arc<dyn lgp_compute::Op>,
    x: ValueId,
    parameters: impl IntoIterator<Item = Input>,
) -> Option<Converted> {
    let inputs = std::iter::once(Input::ChannelsLast(x)).chain(parameters).collect();
    Some(Converted { steps: vec![Step { op, inputs }], channels_last: vec![true] })
}

/// [`one`] for kernels that are there for f32 alone.
fn one_f32(graph: &Graph, op: Arc<dyn lgp_compute::Op>, x: ValueId) -> Option<Converted> {
    if graph.info(x)?.ty.dtype == DType::F32 { one(op, x, []) } else { None }
}

/// All inputs but the first, as they are.
fn parameters(node: &Node) -> Vec<Input> {
    node.inputs.iter().skip(1).map(|id| id.map_or(Input::Absent, Input::AsItIs)).collect()
}

/// The channels-last place of an axis, negative from the back.
fn axis_of(axis: i64) -> Option<i64> {
    let axis = usize::try_from(if axis < 0 { axis.checked_add(4)? } else { axis }).ok()?;
    i64::try_from(*CHANNELS_FIRST.get(axis)?).ok()
}

/// The contents of a constant of integers.
fn integers(graph: &Graph, node: &Node, input: usize) -> Option<Vec<i64>> {
    let tensor = graph.constant(node.inputs.get(input).copied().flatten()?)?;
    match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().ok().map(<[i64]>::to_vec),
        DType::I32 => Some(tensor.as_slice::<i32>().ok()?.iter().map(|&n| n.into()).collect()),
        _ => None,
    }
}

/// Whether an input is there.
fn has(node: &Node, input: usize) -> bool {
    node.inputs.get(input).copied().flatten().is_some()
}

fn binary(graph: &Graph, node: &Node, op: &Binary) -> Option<Converted> {
    if rank_of(graph, node.outputs.first().copied().flatten()?) != Some(4) {
        return None;
    }
    let mut inputs = Vec::with_capacity(2);
    for id in &node.inputs {
        let id = (*id)?;
        inputs.push(match (graph.constant(id), rank_of(graph, id)?) {
            (_, 0) => Input::AsItIs(id),
            (Some(constant), _) if constant.len() == 1 => Input::AsItIs(id),
            (Some(constant), _) => Input::Constant(channels_last_constant(constant)?),
            (None, 4) => Input::ChannelsLast(id),
            (None, _) => return None,
        });
    }
    let steps = vec![Step { op: Arc::new(op.clone()), inputs }];
    Some(Converted { steps, channels_last: vec![true] })
}

fn concat(graph: &Graph, node: &Node, op: &Concat) -> Option<Converted> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for id in &node.inputs {
        let id = (*id).filter(|&id| rank_of(graph, id) == Some(4))?;
        inputs.push(match graph.constant(id) {
            Some(constant) => Input::Constant(channels_last_constant(constant)?),
            None => Input::ChannelsLast(id),
        });
    }
    let op = Arc::new(Concat { axis: axis_of(op.axis)? });
    Some(Converted { steps: vec![Step { op, inputs }], channels_last: vec![true] })
}

fn pool(graph: &Graph, node: &Node, op: &Pool, x: ValueId) -> Option<Converted> {
    let pair = |values: &[usize]| match *values {
        [] => Some([1, 1]),
        [a, b] => Some([a, b]),
        _ => None,
    };
    // The positions of maxima are another output.
    if node.outputs.iter().skip(1).any(Option::is_some) {
        return None;
    }
    let op = PoolNhwc {
        kind: op.kind,
        kernel: op.kernel.as_slice().try_into().ok()?,
        strides: pair(&op.strides)?,
        pads: op.pads.clone(),
        dilations: pair(&op.dilations)?,
        ceil_mode: op.ceil_mode,
    };
    one_f32(graph, Arc::new(op), x)
}

/// A scale and a shift per channel.
fn batch_norm(graph: &Graph, node: &Node, op: &BatchNorm, x: ValueId) -> Option<Converted> {
    let part = |i: usize| {
        let tensor = graph.constant(node.inputs.get(i).copied().flatten()?)?;
        tensor.as_slice::<f32>().ok()
    };
    let (scale, shift, mean, variance) = (part(1)?, part(2)?, part(3)?, part(4)?);
    let channels = scale.len();
    if graph.info(x)?.ty.dtype != DType::F32
        || [shift, mean, variance].iter().any(|part| part.len() != channels)
    {
        return None;
    }
    // In double precision, so that folding costs one rounding.
    let factors: Vec<f64> = scale
        .iter()
        .zip(variance)
        .map(|(&s, &v)| f64::from(s) / (f64::from(v) + f64::from(op.epsilon)).sqrt())
        .collect();
    let moved = shift.iter().zip(mean).zip(&factors);
    let moved: Vec<f32> =
        moved.map(|((&s, &m), f)| (f64::from(s) - f64::from(m) * f) as f32).collect();
    let factors: Vec<f32> = factors.into_iter().map(|f| f as f32).collect();
    let constant = |values: &[f32]| Tensor::from_slice([channels], values).ok();
    let step = |kind, x, values: &[f32]| {
        let op: Arc<dyn lgp_compute::Op> = Arc::new(Binary::new(kind));
        Some(Step { op, inputs: vec![x, Input::Constant(constant(values)?)] })
    };
    let steps = vec![
        step(BinaryKind::Mul, Input::ChannelsLast(x), &factors)?,
        step(BinaryKind::Add, Input::Previous, &moved)?,
    ];
    Some(Converted { steps, channels_last: vec![true] })
}

fn reduce(graph: &Graph, node: &Node, op: &Reduce, x: ValueId) -> Option<Converted> {
    let axes = if has(node, 1) { integers(graph, node, 1)? } else { op.axes.clone()? };
    let axes: Vec<i64> = axes.into_iter().map(axis_of).collect::<Option<_>>()?;
    let spatial = axes.len() == 2 && axes.contains(&1) && axes.contains(&2);
    // Without the reduced axes there is no channels-last, but `[n, c]` is the same either way.
    if axes.is_empty() || !(op.keep_dims || spatial) {
        return None;
    }
    let keep_dims = op.keep_dims;
    let mut reduced = one(Arc::new(Reduce { axes: Some(axes), ..op.clone() }), x, [])?;
    reduced.channels_last = vec![keep_dims];
    Some(reduced)
}

fn pad(graph: &Graph, node: &Node, op: &Pad, x: ValueId) -> Option<Converted> {
    let given = if has(node, 1) { integers(graph, node, 1)? } else { op.pads.clone()? };
    let axes = if has(node, 3) { integers(graph, node, 3)? } else { vec![0, 1, 2, 3] };
    if given.len() != 2 * axes.len() {
        return None;
    }
    let mut pads = vec![0; 8];
    for (i, &axis) in axes.iter().enumerate() {
        let at = usize::try_from(axis_of(axis)?).ok()?;
        (pads[at], pads[4 + at]) = (given[i], given[axes.len() + i]);
    }
    let op = Pad { pads: Some(pads), ..op.clone() };
    let value = node.inputs.get(2).copied().flatten().map_or(Input::Absent, Input::AsItIs);
    one(Arc::new(op), x, [Input::Absent, value])
}

fn slice(graph: &Graph, node: &Node, op: &Slice, x: ValueId) -> Option<Converted> {
    let axes = match (has(node, 3), &op.axes) {
        (true, _) => integers(graph, node, 3)?,
        (false, Some(axes)) => axes.clone(),
        (false, None) => {
            let starts = match &op.starts {
                Some(starts) => starts.len(),
                None => integers(graph, node, 1)?.len(),
            };
            (0..i64::try_from(starts).ok()?).collect()
        }
    };
    let axes = axes.into_iter().map(axis_of).collect::<Option<_>>()?;
    let mut inputs = parameters(node);
    if let Some(axes) = inputs.get_mut(2) {
        *axes = Input::Absent;
    }
    one(Arc::new(Slice { axes: Some(axes), ..op.clone() }), x, inputs)
}
