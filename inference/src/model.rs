//! A model as ONNX describes it: named values, nodes by operator name, stored tensors.
//!
//! Everything in a [`Model`] was checked: names are unique, every name that is read is defined, and
//! nodes are in an order in which they can run. Its operators are looked up when a session is made.

mod checks;
mod node;
mod parts;

pub use node::{Attr, ModelNode, Subgraph};
pub use parts::ModelParts;

use crate::operators::Operators;
use lgp_memory::{Tensor, TensorType, ValueKind};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Name and type of a model's input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueSpec {
    /// The name by which it is given to, or returned from, a session.
    pub name: String,
    /// Element type and shape; dimensions may be symbolic.
    pub ty: TensorType,
    /// Whether the value is a tensor of that type, or holds tensors of that type.
    pub kind: ValueKind,
}

impl ValueSpec {
    /// A tensor.
    #[must_use]
    pub fn tensor(name: impl Into<String>, ty: TensorType) -> Self {
        Self { name: name.into(), ty, kind: ValueKind::Tensor }
    }
}

/// A checked ONNX model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) name: String,
    pub(crate) producer: String,
    pub(crate) ir_version: i64,
    pub(crate) opsets: BTreeMap<String, i64>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) inputs: Vec<ValueSpec>,
    /// Inputs that the file stores a value for.
    pub(crate) defaults: Vec<ValueSpec>,
    pub(crate) outputs: Vec<ValueSpec>,
    pub(crate) initializers: BTreeMap<String, Tensor>,
    pub(crate) nodes: Vec<ModelNode>,
    /// Operators of other crates.
    pub(crate) operators: Operators,
}

impl From<Model> for Cow<'_, Model> {
    fn from(model: Model) -> Self {
        Self::Owned(model)
    }
}

impl<'a> From<&'a Model> for Cow<'a, Model> {
    fn from(model: &'a Model) -> Self {
        Self::Borrowed(model)
    }
}

impl Model {
    /// The same model with operators that this crate does not know. Files do not carry them: a
    /// model that is saved and loaded again needs them again.
    #[must_use]
    pub fn with_operators(mut self, operators: Operators) -> Self {
        self.operators = operators;
        self
    }

    /// The graph's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program that wrote the model.
    #[must_use]
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// Version of the file format.
    #[must_use]
    pub fn ir_version(&self) -> i64 {
        self.ir_version
    }

    /// Version of ONNX's own operator set.
    #[must_use]
    pub fn opset(&self) -> i64 {
        self.opsets.get("").copied().unwrap_or(1)
    }

    /// Version of each operator set by domain; ONNX's own domain is the empty string.
    #[must_use]
    pub fn opsets(&self) -> &BTreeMap<String, i64> {
        &self.opsets
    }

    /// Free-form notes that the file carries.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The inputs that a caller must give, in order. One with a stored default is a constant.
    #[must_use]
    pub fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    /// Inputs with a stored default: constants here, and inputs again in a file that is written.
    #[must_use]
    pub fn defaults(&self) -> &[ValueSpec] {
        &self.defaults
    }

    /// The outputs, in order, as the file declares them.
    #[must_use]
    pub fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// The nodes, each after the nodes that it reads from.
    #[must_use]
    pub fn nodes(&self) -> &[ModelNode] {
        &self.nodes
    }

    /// The stored tensors by name.
    #[must_use]
    pub fn initializers(&self) -> &BTreeMap<String, Tensor> {
        &self.initializers
    }

    /// Number of stored elements, the count that papers call parameters. Those of graphs inside
    /// nodes are among them.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.graphs().iter().flat_map(|(stored, _)| stored.values()).map(Tensor::len).sum()
    }

    /// How often each operator occurs, graphs inside nodes included.
    #[must_use]
    pub fn operator_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for node in self.graphs().iter().flat_map(|(_, nodes)| nodes.iter()) {
            *counts.entry(node.op_type.as_str()).or_default() += 1;
        }
        counts
    }

    /// Stored tensors and nodes of the graph, and of every graph inside its nodes.
    fn graphs(&self) -> Vec<(&BTreeMap<String, Tensor>, &[ModelNode])> {
        let mut all = vec![(&self.initializers, self.nodes.as_slice())];
        let mut at = 0;
        while let Some(&(_, nodes)) = all.get(at) {
            let attributes = nodes.iter().flat_map(|node| node.attributes.values());
            all.extend(attributes.filter_map(|attribute| match attribute {
                Attr::Graph(graph) => Some((&graph.initializers, graph.nodes.as_slice())),
                _ => None,
            }));
            at += 1;
        }
        all
    }
}

/// The names of `specs`, for messages.
pub(crate) fn names(specs: &[ValueSpec]) -> Vec<String> {
    specs.iter().map(|s| s.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use lgp_memory::{DType, Dim, SymShape};
    use std::sync::Arc;

    fn spec(name: &str) -> ValueSpec {
        let shape = Some(SymShape(vec![Dim::Known(1)]));
        ValueSpec::tensor(name, TensorType { dtype: DType::F32, shape })
    }

    fn node(name: &str, inputs: &[&str], outputs: &[&str]) -> ModelNode {
        ModelNode {
            name: name.into(),
            op_type: "Relu".into(),
            domain: String::new(),
            inputs: inputs.iter().map(|s| (*s).to_owned()).collect(),
            outputs: outputs.iter().map(|s| (*s).to_owned()).collect(),
            attributes: BTreeMap::new(),
        }
    }

    fn model(nodes: Vec<ModelNode>) -> Result<Model> {
        Model {
            name: "m".into(),
            producer: String::new(),
            ir_version: 8,
            opsets: [(String::new(), 18)].into(),
            metadata: BTreeMap::new(),
            inputs: vec![spec("x")],
            defaults: Vec::new(),
            outputs: vec![spec("y")],
            initializers: [("w".to_owned(), Tensor::scalar(1f32)?)].into(),
            nodes,
            operators: Operators::default(),
        }
        .validated()
    }

    #[test]
    fn nodes_are_put_in_running_order() -> Result<()> {
        let m = model(vec![node("b", &["a"], &["y"]), node("a", &["x"], &["a"])])?;
        assert_eq!(m.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(m.operator_counts(), [("Relu", 2)].into());
        assert_eq!(m.parameters(), 1);
        Ok(())
    }

    #[test]
    fn graphs_inside_nodes_count() -> Result<()> {
        let body = Subgraph {
            name: "body".into(),
            inputs: vec![],
            outputs: vec!["b".into()],
            initializers: [("v".to_owned(), Tensor::from_slice([3], &[1f32; 3])?)].into(),
            nodes: vec![node("b", &["v"], &["b"])],
            captures: vec![],
        };
        let mut outer = node("y", &["x"], &["y"]);
        outer.op_type = "If".into();
        for branch in ["then_branch", "else_branch"] {
            outer.attributes.insert(branch.into(), Attr::Graph(Arc::new(body.clone())));
        }
        let m = model(vec![outer])?;
        assert_eq!(m.operator_counts(), [("If", 1), ("Relu", 2)].into());
        assert_eq!(m.parameters(), 1 + 2 * 3);
        Ok(())
    }

    #[test]
    fn broken_graphs_are_refused() {
        let cases: [(&str, Vec<ModelNode>); 6] = [
            (
                "the graph has a cycle through 'a', 'b'",
                vec![
                    node("a", &["b"], &["a"]),
                    node("b", &["a"], &["b"]),
                    node("c", &["x"], &["y"]),
                ],
            ),
            (
                "invalid graph: node 'a' (Relu) reads 'nowhere', which nothing defines",
                vec![node("a", &["nowhere"], &["y"])],
            ),
            ("invalid graph: model output 'y' is defined by no node", vec![]),
            (
                "invalid graph: value 'y', an output of node 'b', is defined more than once",
                vec![node("a", &["x"], &["y"]), node("b", &["x"], &["y"])],
            ),
            (
                "invalid graph: value 'x', an output of node 'a', is defined more than once",
                vec![node("a", &["w"], &["x"])],
            ),
            ("the graph has a cycle through 'a'", vec![node("a", &["y"], &["y"])]),
        ];
        for (message, nodes) in cases {
            assert_eq!(model(nodes).unwrap_err().to_string(), message);
        }
    }
}
