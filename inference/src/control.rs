//! Operators that run graphs: branches, loops, scans, maps over sequences.

mod branch;
mod repeat;
mod scan;
mod sequence_map;
#[cfg(test)]
mod tests;

pub(crate) use branch::If;
pub(crate) use repeat::Loop;
pub(crate) use scan::Scan;
pub(crate) use sequence_map::SequenceMap;

use crate::compiled::Compiled;
use crate::error::Error;
use crate::exec::Program;
use crate::graph::Graph;
use crate::passes;
use lgp_compute::{Context, Error as OpError, Result as OpResult, ValueInfo};
use lgp_memory::{Datum, Tensor, TensorType, ValueKind};
use std::sync::OnceLock;

/// A graph inside an operator. Its inputs are its own, then the values that it takes from the graph
/// around it.
#[derive(Debug)]
pub(crate) struct Body {
    graph: Graph,
    /// How many of the inputs are the graph's own.
    pub(crate) own: usize,
    /// How deep graphs nest in this graph, itself included.
    pub(crate) depth: usize,
    /// The kinds and dtypes of the graph's inputs, known before any run: an empty sequence does not
    /// tell the dtype of its elements.
    kinds: OnceLock<Vec<ValueInfo>>,
    program: OnceLock<Result<Program, String>>,
}

impl Body {
    pub(crate) fn new(graph: Graph, own: usize, depth: usize) -> Self {
        Self { graph, own, depth, kinds: OnceLock::new(), program: OnceLock::new() }
    }

    /// Bytes that the graph stores.
    fn stored_bytes(&self) -> usize {
        self.graph.stored_bytes()
    }

    /// How many values the graph returns.
    pub(crate) fn outputs(&self) -> usize {
        self.graph.outputs.len()
    }

    /// The types of the graph's outputs for inputs of these types.
    fn infer(&self, inputs: Vec<ValueInfo>) -> OpResult<Vec<ValueInfo>> {
        self.kinds.get_or_init(|| inputs.iter().map(kind_of).collect());
        let failed = |e: Error| OpError::invalid(format!("in its graph: {e}"));
        let graph = self.typed(inputs);
        let mut graph = graph.map_err(failed)?;
        for index in 0..graph.nodes.len() {
            graph.infer_node(index).map_err(failed)?;
        }
        let output = |(name, id): &(String, _)| {
            let info = graph.info(*id).cloned();
            info.ok_or_else(|| OpError::invalid(format!("its output '{name}' has no type")))
        };
        graph.outputs.iter().map(output).collect()
    }

    fn typed(&self, inputs: Vec<ValueInfo>) -> Result<Graph, Error> {
        if inputs.len() != self.graph.inputs.len() {
            let (given, expected) = (inputs.len(), self.graph.inputs.len());
            return Err(Error::graph(format!("{given} inputs given, expected {expected}")));
        }
        let mut graph = self.graph.clone();
        for (id, info) in self.graph.inputs.iter().zip(inputs) {
            // A constant would be folded for all calls, but the next call may bring another value.
            graph.values[id.0].info = Some(ValueInfo { constant: None, dims: None, ..info });
        }
        Ok(graph)
    }

    /// Runs the graph.
    fn run(&self, ctx: &Context, inputs: Vec<Datum>) -> OpResult<Vec<Datum>> {
        let compile = || {
            let given = || inputs.iter().map(|input| kind_of(&exact(input))).collect();
            let infos = self.kinds.get().cloned().unwrap_or_else(given);
            let mut graph = self.typed(infos).map_err(|e| e.to_string())?;
            passes::optimize(&mut graph).map_err(|e| e.to_string())?;
            Ok(Program::new(graph))
        };
        let program = self.program.get_or_init(compile).as_ref();
        let program = program.map_err(|e| OpError::invalid(format!("in its graph: {e}")))?;
        let inputs = inputs.into_iter().map(Into::into).collect();
        program.run(ctx, inputs, None).map_err(|e| match e {
            Error::Stopped(why) => why.into(),
            other => OpError::invalid(format!("in its graph: {other}")),
        })
    }
}

/// The facts that all calls of a graph have in common: kinds and dtypes, but no shapes.
fn kind_of(info: &ValueInfo) -> ValueInfo {
    ValueInfo::holding(info.kind, TensorType { dtype: info.ty.dtype, shape: None })
}

/// The type of an actual value, as far as the value tells it.
fn exact(value: &Datum) -> ValueInfo {
    let ty = |tensor: Option<&Tensor>| TensorType {
        dtype: tensor.map_or(lgp_memory::DType::F32, Tensor::dtype),
        shape: None,
    };
    match value {
        Datum::Tensor(t) => ValueInfo::of(TensorType::concrete(t.dtype(), t.shape())),
        Datum::Map { values, .. } => ValueInfo::holding(ValueKind::Map, ty(Some(values))),
        Datum::Absent => ValueInfo::holding(ValueKind::Optional, ty(None)),
        Datum::Sequence(items) => match items.first() {
            Some(Datum::Map { values, .. }) => {
                ValueInfo::holding(ValueKind::SequenceOfMaps, ty(Some(values)))
            }
            first => ValueInfo::holding(ValueKind::Sequence, ty(first.and_then(Datum::tensor))),
        },
    }
}

/// The inputs, all of which must be present.
fn present(inputs: impl IntoIterator<Item = Option<Datum>>) -> OpResult<Vec<Datum>> {
    let inputs = inputs.into_iter().enumerate();
    inputs
        .map(|(i, input)| input.ok_or_else(|| OpError::invalid(format!("input {i} is missing"))))
        .collect()
}

/// The types of the inputs, all of which must be present.
fn present_infos(inputs: &[Option<&ValueInfo>]) -> OpResult<Vec<ValueInfo>> {
    let inputs = inputs.iter().enumerate();
    inputs
        .map(|(i, input)| {
            input.cloned().ok_or_else(|| OpError::invalid(format!("input {i} is missing")))
        })
        .collect()
}

/// The value of a condition.
fn truth(value: &Datum) -> OpResult<bool> {
    let wrong =
        || OpError::invalid(format!("the condition is {}, expected one bool", value.kind()));
    let tensor = value.tensor().ok_or_else(wrong)?;
    match tensor.as_slice::<bool>() {
        Ok([truth]) => Ok(*truth),
        _ => Err(wrong()),
    }
}

/// A stack of no tensors along a new axis: it has their dtype, and their dimensions where known.
fn stack_of_none(info: ValueInfo, axis: usize) -> OpResult<Tensor> {
    let inner = info.ty.shape.map(|s| s.0).unwrap_or_default();
    let mut dims: Vec<usize> = inner.iter().map(|d| d.known().unwrap_or(0)).collect();
    dims.insert(axis.min(dims.len()), 0);
    Ok(Tensor::zeros(info.ty.dtype, dims)?)
}

/// Stacks tensors of equal shapes along a new axis.
fn stacked(ctx: &Context, parts: &[Tensor], axis: i64) -> OpResult<Tensor> {
    let unsqueeze = lgp_compute::ops::Unsqueeze { axes: Some(vec![axis]) };
    let mut slices = Vec::with_capacity(parts.len());
    for part in parts {
        slices.extend(lgp_compute::launch(&unsqueeze, ctx, &[Some(part.view())])?);
    }
    let views: Vec<_> = slices.iter().map(|s| Some(s.view())).collect();
    let concat = lgp_compute::ops::Concat { axis };
    lgp_compute::launch(&concat, ctx, &views)?
        .pop()
        .ok_or_else(|| OpError::invalid("nothing to stack"))
}
