//! A model as ONNX describes it: named values, nodes by operator name, stored tensors.
//!
//! Everything in a [`Model`] was checked: names are unique, nothing dangles, nodes are in an order
//! in which they can run. Whether its operators exist here is asked when a session is made of it.

use crate::error::{Error, Result};
use crate::operators::Operators;
use lgp_memory::{Tensor, TensorType, ValueKind};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// Name and type of a model's input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueSpec {
    /// The name by which it is given to, or returned from, a session.
    pub name: String,
    /// Element type and shape; dimensions may be symbolic.
    pub ty: TensorType,
    /// What has that type: the value, or the tensors that it holds.
    pub kind: ValueKind,
}

impl ValueSpec {
    /// A tensor.
    #[must_use]
    pub fn tensor(name: impl Into<String>, ty: TensorType) -> Self {
        Self { name: name.into(), ty, kind: ValueKind::Tensor }
    }
}

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
    /// Names of the outputs; empty for an output that nobody wants.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attr>,
}

impl ModelNode {
    /// Names that the node reads: its inputs, and what its graphs take from around them.
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
    /// What it reads from around it, sorted.
    pub(crate) captures: Vec<String>,
}

impl Subgraph {
    /// Checks the names and puts the nodes in running order.
    pub(crate) fn validated(mut self) -> Result<Self> {
        let given = self.inputs.iter().chain(self.initializers.keys());
        let defined = Defined::new(given.map(|name| ("input", name.as_str())), &self.nodes)?;
        let read = self.nodes.iter().flat_map(ModelNode::reads);
        let read = read.chain(self.outputs.iter().map(String::as_str));
        let free: BTreeSet<&str> = read.filter(|name| !defined.names.contains(name)).collect();
        self.captures = free.into_iter().map(str::to_owned).collect();
        let producers = defined.producers;
        self.nodes = in_running_order(self.nodes, &producers)?;
        Ok(self)
    }
}

/// The names that a graph defines.
struct Defined<'a> {
    names: HashSet<&'a str>,
    /// Which node makes each value.
    producers: HashMap<String, usize>,
}

impl<'a> Defined<'a> {
    fn new(
        given: impl Iterator<Item = (&'static str, &'a str)>,
        nodes: &'a [ModelNode],
    ) -> Result<Self> {
        let mut names: HashSet<&str> = HashSet::new();
        for (what, name) in given {
            if name.is_empty() {
                return Err(Error::graph(format!("an {what} has no name")));
            }
            if !names.insert(name) {
                return Err(Error::graph(format!("value '{name}' is defined more than once")));
            }
        }
        let mut producers = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|o| !o.is_empty()) {
                if !names.insert(output) {
                    return Err(Error::graph(format!(
                        "value '{output}', an output of node '{}', is defined more than once",
                        node.name
                    )));
                }
                producers.insert(output.clone(), index);
            }
        }
        Ok(Self { names, producers })
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
    /// Those of other crates.
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

    /// What a caller must give, in order. An input with a stored default is a constant, not here.
    #[must_use]
    pub fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    /// Inputs with a stored default: constants here, and inputs again in a file that is written.
    #[must_use]
    pub fn defaults(&self) -> &[ValueSpec] {
        &self.defaults
    }

    /// What the model returns, in order, as the file declares it.
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

    /// Checks the names and puts the nodes in running order.
    pub(crate) fn validated(mut self) -> Result<Self> {
        let producers = self.check_names()?;
        self.nodes = in_running_order(self.nodes, &producers)?;
        Ok(self)
    }

    /// Every name is defined once and every used name is defined. Returns who makes what.
    fn check_names(&self) -> Result<HashMap<String, usize>> {
        let inputs = self.inputs.iter().map(|v| ("input", v.name.as_str()));
        let stored = self.initializers.keys().map(|name| ("initializer", name.as_str()));
        let Defined { names, producers } = Defined::new(inputs.chain(stored), &self.nodes)?;
        for node in &self.nodes {
            if let Some(unknown) = node.reads().find(|name| !names.contains(name)) {
                return Err(Error::graph(format!(
                    "node '{}' ({}) reads '{unknown}', which nothing defines",
                    node.name, node.op_type
                )));
            }
        }
        self.check_outputs(&names)?;
        Ok(producers)
    }

    fn check_outputs(&self, defined: &HashSet<&str>) -> Result<()> {
        if self.outputs.is_empty() {
            return Err(Error::graph("the model has no outputs"));
        }
        let mut seen = HashSet::new();
        for output in &self.outputs {
            if !defined.contains(output.name.as_str()) {
                return Err(Error::graph(format!(
                    "model output '{}' is defined by no node",
                    output.name
                )));
            }
            if !seen.insert(&output.name) {
                return Err(Error::graph(format!(
                    "model output '{}' is declared more than once",
                    output.name
                )));
            }
        }
        Ok(())
    }
}

/// Kahn's algorithm; among nodes that could run, the file's order is kept.
fn in_running_order(
    nodes: Vec<ModelNode>,
    producers: &HashMap<String, usize>,
) -> Result<Vec<ModelNode>> {
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for &producer in node.reads().filter_map(|name| producers.get(name)) {
            waiting[index] += 1;
            readers[producer].push(index);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&i| waiting[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck =
            nodes.iter().zip(&waiting).filter(|(_, w)| **w > 0).map(|(n, _)| n.name.clone());
        return Err(Error::Cycle { nodes: stuck.collect() });
    }
    let mut slots: Vec<Option<ModelNode>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots[i].take()).collect())
}

/// The names of `specs`, for messages.
pub(crate) fn names(specs: &[ValueSpec]) -> Vec<String> {
    specs.iter().map(|s| s.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_memory::{DType, Dim, SymShape};

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
