//! One ONNX node while it is mapped: a mapping reads the node and adds operators to the graph.

use super::lowering::{Lowering, Names};
use crate::control::Body;
use crate::graph::{Graph, Node, ValueId};
use crate::model::{Attr, ModelNode};
use lgp_compute::Op;
use lgp_memory::{Tensor, TensorType, ValueKind};
use std::collections::HashSet;
use std::sync::Arc;

/// Why a node cannot be mapped, in words.
pub(crate) type Refusal = String;

/// The node, and the graph that its operators go into. Attributes are noted as they are read: an
/// attribute that the mapping does not read must not be ignored silently.
#[derive(Debug)]
pub(crate) struct NodeCx<'a> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) node: &'a ModelNode,
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<ValueId>>,
    /// `None` for an output that is not read.
    pub(crate) outputs: Vec<Option<ValueId>>,
    /// The values that a graph inside the node may name.
    names: &'a Names,
    lowering: &'a mut Lowering,
    read: HashSet<&'static str>,
}

impl<'a> NodeCx<'a> {
    pub(crate) fn new(
        graph: &'a mut Graph,
        node: &'a ModelNode,
        opset: i64,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<Option<ValueId>>,
        names: &'a Names,
        lowering: &'a mut Lowering,
    ) -> Self {
        Self { graph, node, opset, inputs, outputs, names, lowering, read: HashSet::new() }
    }

    /// The graph that an attribute holds, and the values that it captures. These are inputs of the
    /// operator that runs the graph.
    pub(crate) fn body(&mut self, key: &'static str) -> Result<(Body, Vec<ValueId>), Refusal> {
        match self.attr(key) {
            None => Err(format!("attribute '{key}' is missing")),
            Some(Attr::Graph(inner)) => self.lowering.body(self.graph, self.names, inner),
            Some(other) => Err(wrong_kind(key, other, "a graph")),
        }
    }

    /// Whether the node has an attribute.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.node.attributes.contains_key(key)
    }

    /// Adds the nodes of the graph that an attribute holds, with `inputs` as the graph's inputs.
    /// Returns the graph's outputs.
    pub(crate) fn inline(
        &mut self,
        key: &'static str,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, Refusal> {
        match self.attr(key) {
            None => Err(format!("attribute '{key}' is missing")),
            Some(Attr::Graph(inner)) => self.lowering.inline(self.graph, self.names, inner, inputs),
            Some(other) => Err(wrong_kind(key, other, "a graph")),
        }
    }

    /// The type that an attribute holds.
    pub(crate) fn type_attr(
        &mut self,
        key: &'static str,
    ) -> Result<Option<(ValueKind, TensorType)>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Type(kind, ty)) => Ok(Some((*kind, ty.clone()))),
            Some(other) => Err(wrong_kind(key, other, "a type")),
        }
    }

    /// Input `index`, `None` when it is absent.
    pub(crate) fn input(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    /// The tensor of input `index`, if it is a constant.
    pub(crate) fn constant(&self, index: usize) -> Option<&Tensor> {
        self.input(index).and_then(|id| self.graph.constant(id))
    }

    /// Makes the node one operator on the given inputs.
    pub(crate) fn map_with(
        &mut self,
        op: impl Op,
        inputs: Vec<Option<ValueId>>,
    ) -> Result<(), Refusal> {
        self.push(self.node.name.clone(), op, inputs, self.outputs.clone());
        Ok(())
    }

    /// Makes the node one operator on its own inputs.
    pub(crate) fn map(&mut self, op: impl Op) -> Result<(), Refusal> {
        self.map_with(op, self.inputs.clone())
    }

    /// Adds an operator and returns its one output, for the operators that follow.
    pub(crate) fn emit(&mut self, op: impl Op, inputs: Vec<Option<ValueId>>) -> ValueId {
        let name = format!("{}.{}", self.node.name, self.graph.nodes.len());
        let output = self.graph.add_value(name.clone());
        self.push(name, op, inputs, vec![Some(output)]);
        output
    }

    /// Adds an operator that writes some of the node's own outputs, in place of [`NodeCx::map`].
    pub(crate) fn emit_into(
        &mut self,
        op: impl Op,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<Option<ValueId>>,
    ) {
        let name = format!("{}.{}", self.node.name, self.graph.nodes.len());
        self.push(name, op, inputs, outputs);
    }

    /// Adds an operator that is part of this node.
    pub(crate) fn push(
        &mut self,
        name: String,
        op: impl Op,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<Option<ValueId>>,
    ) {
        let op_type = Some(self.node.op_type.as_str().into());
        self.graph.nodes.push(Node { name, op_type, op: Arc::new(op), inputs, outputs });
        // Mappings ask for dtypes and ranks. An error is ignored here: it comes again when the
        // types of the whole graph are inferred.
        let _ = self.graph.infer_node(self.graph.nodes.len() - 1);
    }

    /// Adds a constant of i64 and rank 1.
    pub(crate) fn emit_ints(&mut self, values: &[i64]) -> Result<ValueId, Refusal> {
        let tensor = Tensor::from_slice([values.len()], values).map_err(|e| e.to_string())?;
        Ok(self.emit_constant(tensor))
    }

    /// Adds a constant of f32 and rank 0.
    pub(crate) fn emit_float(&mut self, value: f32) -> Result<ValueId, Refusal> {
        let tensor = Tensor::scalar(value).map_err(|e| e.to_string())?;
        Ok(self.emit_constant(tensor))
    }

    /// Adds a constant.
    pub(crate) fn emit_constant(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("{}.constant.{}", self.node.name, self.graph.values.len());
        self.graph.add_constant(name, tensor)
    }

    /// Output `index`, `None` when it is not read.
    pub(crate) fn output(&self, index: usize) -> Option<ValueId> {
        self.outputs.get(index).copied().flatten()
    }

    /// Whether the node names an output from `first` on, read or not.
    pub(crate) fn declares_outputs_from(&self, first: usize) -> bool {
        self.node.outputs.iter().skip(first).any(|name| !name.is_empty())
    }

    /// Refuses the node when an output from `count` on is read.
    pub(crate) fn at_most_outputs(&mut self, count: usize) -> Result<(), Refusal> {
        match self.outputs.iter().skip(count).position(Option::is_some) {
            Some(extra) => Err(format!("output {} is not supported", count + extra)),
            None => {
                self.outputs.truncate(count);
                Ok(())
            }
        }
    }

    fn attr(&mut self, key: &'static str) -> Option<&'a Attr> {
        self.read.insert(key);
        self.node.attributes.get(key)
    }

    /// Notes attributes as read that change nothing here.
    pub(crate) fn ignore(&mut self, keys: &[&'static str]) {
        self.read.extend(keys);
    }

    pub(crate) fn int(&mut self, key: &'static str) -> Result<Option<i64>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Int(i)) => Ok(Some(*i)),
            Some(other) => Err(wrong_kind(key, other, "an integer")),
        }
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Refusal> {
        Ok(self.int(key)?.map(|i| i != 0))
    }

    pub(crate) fn size(&mut self, key: &'static str) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.int(key)? else { return Ok(None) };
        usize::try_from(value)
            .map(Some)
            .map_err(|_| format!("attribute '{key}' is {value}, expected 0 or more"))
    }

    pub(crate) fn float(&mut self, key: &'static str) -> Result<Option<f32>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Float(f)) => Ok(Some(*f)),
            Some(other) => Err(wrong_kind(key, other, "a float")),
        }
    }

    pub(crate) fn ints(&mut self, key: &'static str) -> Result<Option<Vec<i64>>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Ints(v)) => Ok(Some(v.clone())),
            Some(other) => Err(wrong_kind(key, other, "a list of integers")),
        }
    }

    /// Sizes; empty when the attribute is absent.
    pub(crate) fn sizes(&mut self, key: &'static str) -> Result<Vec<usize>, Refusal> {
        let values = self.ints(key)?.unwrap_or_default();
        let sizes = values.iter().map(|&v| {
            usize::try_from(v)
                .map_err(|_| format!("attribute '{key}' is {values:?}, expected 0 or more"))
        });
        sizes.collect()
    }

    pub(crate) fn floats(&mut self, key: &'static str) -> Result<Option<Vec<f32>>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Floats(v)) => Ok(Some(v.clone())),
            Some(other) => Err(wrong_kind(key, other, "a list of floats")),
        }
    }

    /// Texts; empty when the attribute is absent.
    pub(crate) fn texts(&mut self, key: &'static str) -> Result<&'a [String], Refusal> {
        match self.attr(key) {
            None => Ok(&[]),
            Some(Attr::Strs(v)) => Ok(v),
            Some(other) => Err(wrong_kind(key, other, "a list of strings")),
        }
    }

    pub(crate) fn tensor(&mut self, key: &'static str) -> Result<Option<Tensor>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Tensor(t)) => Ok(Some(t.clone())),
            Some(other) => Err(wrong_kind(key, other, "a tensor")),
        }
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, Refusal> {
        match self.attr(key) {
            None => Ok(None),
            Some(Attr::Str(s)) => Ok(Some(s)),
            Some(other) => Err(wrong_kind(key, other, "a string")),
        }
    }

    /// The attributes that the mapping did not look at.
    pub(crate) fn unread(&self) -> Vec<&'a str> {
        let keys = self.node.attributes.keys().map(String::as_str);
        keys.filter(|k| !self.read.contains(k)).collect()
    }
}

fn wrong_kind(key: &str, given: &Attr, expected: &str) -> Refusal {
    let given = match given {
        Attr::Int(_) => "an integer",
        Attr::Float(_) => "a float",
        Attr::Str(_) => "a string",
        Attr::Ints(_) => "a list of integers",
        Attr::Floats(_) => "a list of floats",
        Attr::Strs(_) => "a list of strings",
        Attr::Tensor(_) => "a tensor",
        Attr::Graph(_) => "a graph",
        Attr::Type(..) => "a type",
        Attr::Other(what) => what,
    };
    format!("attribute '{key}' is {given}, expected {expected}")
}

/// An unsupported value of a text attribute.
pub(crate) fn unsupported(key: &str, given: &str, expected: &[&str]) -> Refusal {
    format!("attribute '{key}' is '{given}', supported: {}", expected.join(", "))
}
