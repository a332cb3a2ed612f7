//! Writes a model node by node, for everything that makes models: training, compression, tests.

use crate::error::{Error, Result};
use crate::model::{Attr, Model, ModelNode, ValueSpec};
use crate::operators::Operators;
use lgp_memory::{Tensor, TensorType};
use std::collections::{BTreeMap, HashSet};

/// Operator set of built models: the newest that every current engine reads.
const OPSET: i64 = 18;

/// File format version that belongs to [`OPSET`].
const IR_VERSION: i64 = 8;

/// A value of the graph that is being built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value(Option<usize>);

impl Value {
    /// Stands for an optional input that is absent.
    pub const ABSENT: Self = Self(None);
}

/// Builds a [`Model`].
///
/// ```
/// use lgp_inference::{Attr, GraphBuilder};
/// use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
///
/// let shape = |rest: &[usize]| {
///     let dims = [Dim::Symbol("n".into())].into_iter().chain(rest.iter().map(|&d| Dim::Known(d)));
///     TensorType { dtype: DType::F32, shape: Some(SymShape(dims.collect())) }
/// };
/// let mut g = GraphBuilder::new("tiny");
/// let x = g.input("image", shape(&[1, 8, 8]));
/// let w = g.initializer("conv.weight", Tensor::from_slice([4, 1, 3, 3], &[0.1f32; 36])?);
/// let b = g.initializer("conv.bias", Tensor::from_slice([4], &[0f32; 4])?);
/// let y = g.node("Conv", &[x, w, b], [("pads", Attr::from([1, 1, 1, 1]))]);
/// let y = g.node("Relu", &[y], []);
/// let y = g.node("MaxPool", &[y], [("kernel_shape", [2, 2].into()), ("strides", [2, 2].into())]);
/// let y = g.node("Flatten", &[y], []);
/// let w = g.initializer("fc.weight", Tensor::from_slice([10, 64], &[0.1f32; 640])?);
/// let y = g.node("Gemm", &[y, w], [("transB", 1.into())]);
/// g.output("logits", y, shape(&[10]));
/// let bytes = g.finish()?.to_onnx()?;
/// # assert!(!bytes.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct GraphBuilder {
    name: String,
    opset: i64,
    metadata: BTreeMap<String, String>,
    names: Vec<String>,
    inputs: Vec<ValueSpec>,
    outputs: Vec<(ValueSpec, Value)>,
    initializers: Vec<(usize, Tensor)>,
    nodes: Vec<Pending>,
}

#[derive(Debug, Clone)]
struct Pending {
    op: String,
    inputs: Vec<Value>,
    outputs: Vec<usize>,
    attributes: BTreeMap<String, Attr>,
}

/// Domain and name of an operator.
fn split(op: &str) -> (&str, &str) {
    op.rsplit_once("::").unwrap_or(("", op))
}

impl GraphBuilder {
    /// An empty graph of opset 18.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            opset: OPSET,
            metadata: BTreeMap::new(),
            names: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            initializers: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Writes another version of ONNX's operator set; the caller's nodes must follow it.
    #[must_use]
    pub fn with_opset(mut self, opset: i64) -> Self {
        self.opset = opset;
        self
    }

    /// Adds a free-form note to the model's metadata.
    pub fn note(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// Declares an input.
    pub fn input(&mut self, name: impl Into<String>, ty: TensorType) -> Value {
        let name = name.into();
        self.inputs.push(ValueSpec::tensor(name.clone(), ty));
        Value(Some(self.named(name)))
    }

    /// Stores a tensor in the model.
    pub fn initializer(&mut self, name: impl Into<String>, tensor: Tensor) -> Value {
        let id = self.named(name.into());
        self.initializers.push((id, tensor));
        Value(Some(id))
    }

    /// Applies an operator with one output. `op` and the attributes are ONNX's; an operator of
    /// another domain is `DOMAIN::NAME`.
    pub fn node<'a>(
        &mut self,
        op: &str,
        inputs: &[Value],
        attributes: impl IntoIterator<Item = (&'a str, Attr)>,
    ) -> Value {
        let [output] = self.node_with_outputs(op, inputs, attributes);
        output
    }

    /// Applies an operator with `N` outputs.
    pub fn node_with_outputs<'a, const N: usize>(
        &mut self,
        op: &str,
        inputs: &[Value],
        attributes: impl IntoIterator<Item = (&'a str, Attr)>,
    ) -> [Value; N] {
        let number = self.nodes.len();
        let ids: [usize; N] =
            std::array::from_fn(|k| self.named(format!("{op}_{number}_output_{k}")));
        self.nodes.push(Pending {
            op: op.to_owned(),
            inputs: inputs.to_vec(),
            outputs: ids.to_vec(),
            attributes: attributes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
        });
        ids.map(|id| Value(Some(id)))
    }

    /// Declares `value` to be the model's output `name`.
    pub fn output(&mut self, name: impl Into<String>, value: Value, ty: TensorType) {
        self.outputs.push((ValueSpec::tensor(name, ty), value));
    }

    /// The finished, checked model.
    ///
    /// # Errors
    /// [`Error::Build`] for an absent output, [`Error::Graph`] for names that are used twice.
    pub fn finish(mut self) -> Result<Model> {
        self.name_outputs()?;
        let names = &self.names;
        let nodes = self.nodes.iter().enumerate().map(|(i, node)| ModelNode {
            name: format!("{}_{i}", node.op),
            op_type: split(&node.op).1.to_owned(),
            domain: split(&node.op).0.to_owned(),
            inputs: node
                .inputs
                .iter()
                .map(|v| v.0.map_or(String::new(), |i| names[i].clone()))
                .collect(),
            outputs: node.outputs.iter().map(|&i| names[i].clone()).collect(),
            attributes: node.attributes.clone(),
        });
        let nodes: Vec<ModelNode> = nodes.collect();
        let mut opsets: BTreeMap<String, i64> =
            nodes.iter().map(|node| (node.domain.clone(), 1)).collect();
        opsets.insert(String::new(), self.opset);
        let mut initializers = BTreeMap::new();
        for (id, tensor) in self.initializers {
            if initializers.insert(self.names[id].clone(), tensor).is_some() {
                let message = format!("initializer '{}' is defined more than once", self.names[id]);
                return Err(Error::Build { message });
            }
        }
        Model {
            name: self.name,
            producer: "radeon-cluster".to_owned(),
            ir_version: IR_VERSION,
            opsets,
            metadata: self.metadata,
            inputs: self.inputs,
            defaults: Vec::new(),
            outputs: self.outputs.into_iter().map(|(spec, _)| spec).collect(),
            initializers,
            nodes,
            operators: Operators::default(),
        }
        .validated()
    }

    /// Gives the values that are outputs their public names. A value that already has one (an
    /// input, a stored tensor, another output) goes through an `Identity` node.
    fn name_outputs(&mut self) -> Result<()> {
        let mut made: HashSet<usize> =
            self.nodes.iter().flat_map(|n| n.outputs.iter().copied()).collect();
        for k in 0..self.outputs.len() {
            let (spec, value) = &self.outputs[k];
            let Some(id) = value.0 else {
                let message = format!("output '{}' is an absent value", spec.name);
                return Err(Error::Build { message });
            };
            let name = spec.name.clone();
            if made.remove(&id) {
                self.names[id] = name;
            } else {
                let output = self.named(name);
                self.nodes.push(Pending {
                    op: "Identity".to_owned(),
                    inputs: vec![Value(Some(id))],
                    outputs: vec![output],
                    attributes: BTreeMap::new(),
                });
            }
        }
        Ok(())
    }

    fn named(&mut self, name: String) -> usize {
        self.names.push(name);
        self.names.len() - 1
    }
}
