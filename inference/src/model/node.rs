//! The nodes of a model, their attributes, and the graphs inside them.

use lgp_memory::{Tensor, TensorType, ValueKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// A string.
    Str(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of floats.
    Floats(Vec<f32>),
    /// A list of strings.
    Strs(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// A graph that the operator runs, such as the branch of an `If`.
    Graph(Arc<Subgraph>),
    /// The type of a value.
    Type(ValueKind, TensorType),
    /// A kind that is carried by name only, such as a list of graphs: no operator here reads it.
    Other(&'static str),
}

impl From<i64> for Attr {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f32> for Attr {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Attr {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

impl<const N: usize> From<[i64; N]> for Attr {
    fn from(value: [i64; N]) -> Self {
        Self::Ints(value.to_vec())
    }
}

impl From<Vec<i64>> for Attr {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<f32>> for Attr {
    fn from(value: Vec<f32>) -> Self {
        Self::Floats(value)
    }
}

impl From<Tensor> for Attr {
    fn from(value: Tensor) -> Self {
        Self::Tensor(value)
    }
}

/// One operator application, as ONNX writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelNode {
    /// Name; made up from operator and position where the file has none.
    pub name: String,
    /// Operator, as ONNX spells it.
    pub op_type: String,
    /// Operator domain; empty for ONNX's own.
    pub domain: String,
    /// Names of the inputs; empty for an optional input that is absent.
    pub inputs: Vec<String>,
    /// Names of the outputs; empty for an optional output that is left out.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attr>,
}

impl ModelNode {
    /// Names that the node reads: its inputs, and the names that its graphs capture.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &str> {
        let captured = self.attributes.values().flat_map(|attribute| match attribute {
            Attr::Graph(graph) => graph.captures.as_slice(),
            _ => &[],
        });
        self.inputs.iter().chain(captured).map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// A graph inside a node. It may read the values of the graphs around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subgraph {
    pub(crate) name: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) initializers: BTreeMap<String, Tensor>,
    pub(crate) nodes: Vec<ModelNode>,
    /// The names that it reads from the graphs around it, sorted.
    pub(crate) captures: Vec<String>,
}
