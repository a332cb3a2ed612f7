//! Writes a model again node by node, so that some nodes can be written differently.

use lgp_inference::{GraphBuilder, Model, ModelNode, Result, Value};
use lgp_memory::Tensor;
use std::collections::HashMap;

/// A model under rewriting: what was written so far, by the old names.
pub(crate) struct Rewrite<'m> {
    pub(crate) model: &'m Model,
    pub(crate) g: GraphBuilder,
    values: HashMap<String, Value>,
}

impl<'m> Rewrite<'m> {
    /// A new graph with the inputs of `model`.
    pub(crate) fn new(model: &'m Model, name: &str) -> Self {
        let mut g = GraphBuilder::new(name).with_opset(model.opset());
        let mut values = HashMap::new();
        for input in model.inputs() {
            values.insert(input.name.clone(), g.input(input.name.clone(), input.ty.clone()));
        }
        Self { model, g, values }
    }

    /// The stored tensor of that name.
    pub(crate) fn constant(&self, name: &str) -> Option<&'m Tensor> {
        self.model.initializers().get(name)
    }

    /// What now stands for the value of an old name; stored tensors are copied on their first use.
    pub(crate) fn value(&mut self, name: &str) -> Value {
        if name.is_empty() {
            return Value::ABSENT;
        }
        if let Some(value) = self.values.get(name) {
            return *value;
        }
        let tensor = self.model.initializers().get(name).expect("a checked model names its values");
        let value = self.g.initializer(name, tensor.clone());
        self.values.insert(name.to_owned(), value);
        value
    }

    /// Lets `value` stand for an old name.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    /// Writes a node as it was.
    pub(crate) fn copy(&mut self, node: &ModelNode) -> Value {
        let inputs: Vec<Value> = node.inputs.iter().map(|name| self.value(name)).collect();
        self.apply(node, &inputs)
    }

    /// Writes a node with other inputs.
    pub(crate) fn apply(&mut self, node: &ModelNode, inputs: &[Value]) -> Value {
        let attributes = node.attributes.iter().map(|(k, v)| (k.as_str(), v.clone()));
        let value = self.g.node(&node.op_type, inputs, attributes);
        self.set(&node.outputs[0], value);
        value
    }

    /// The model with the outputs of the old one.
    pub(crate) fn finish(mut self) -> Result<Model> {
        for output in self.model.outputs() {
            let value = self.value(&output.name);
            self.g.output(output.name.clone(), value, output.ty.clone());
        }
        self.g.finish()
    }
}
