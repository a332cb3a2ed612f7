//! A model taken apart, so that layers above can rewrite it; putting it together checks it again.

use super::{Model, ModelNode, ValueSpec};
use crate::error::Result;
use crate::operators::Operators;
use lgp_memory::Tensor;
use std::collections::BTreeMap;

/// The first operator set of each version of the file format, from the table in ONNX's
/// `Versioning.md`. Engines refuse an operator set in an older file.
const IR_VERSIONS: [(i64, i64); 7] =
    [(10, 5), (11, 6), (12, 7), (15, 8), (19, 9), (21, 10), (23, 11)];

/// The version of the file format that introduced integers of 4 bits.
const IR_INT4: i64 = 10;

/// The parts of a model, free to change.
///
/// ```
/// use lgp_inference::{GraphBuilder, Session, SessionOptions};
/// use lgp_memory::{DType, Tensor, TensorType};
///
/// let ty = TensorType { dtype: DType::F32, shape: None };
/// let mut g = GraphBuilder::new("sum");
/// let x = g.input("x", ty.clone());
/// let b = g.initializer("b", Tensor::from_slice([1], &[1f32])?);
/// let y = g.node("Add", &[x, b], []);
/// g.output("y", y, ty);
///
/// let mut parts = g.finish()?.into_parts();
/// parts.nodes[0].op_type = "Sub".to_owned();
/// let session = Session::new(parts.finish()?, SessionOptions::with_threads(1))?;
/// let x = Tensor::from_slice([1], &[3f32])?;
/// assert_eq!(session.run(&[("x", x.view())])?[0].tensor.as_slice::<f32>()?, [2.]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ModelParts {
    /// The program that wrote the model.
    pub producer: String,
    /// Version of each operator set by domain; ONNX's own domain is the empty string.
    pub opsets: BTreeMap<String, i64>,
    /// Free-form notes that the file carries.
    pub metadata: BTreeMap<String, String>,
    /// The inputs that a caller must give.
    pub inputs: Vec<ValueSpec>,
    /// Inputs with a stored default: each is also an initializer.
    pub defaults: Vec<ValueSpec>,
    /// The outputs.
    pub outputs: Vec<ValueSpec>,
    /// The stored tensors by name.
    pub initializers: BTreeMap<String, Tensor>,
    /// The nodes, in any order.
    pub nodes: Vec<ModelNode>,
    name: String,
    ir_version: i64,
    operators: Operators,
}

impl Model {
    /// Takes the model apart.
    #[must_use]
    pub fn into_parts(self) -> ModelParts {
        ModelParts {
            name: self.name,
            producer: self.producer,
            ir_version: self.ir_version,
            opsets: self.opsets,
            metadata: self.metadata,
            inputs: self.inputs,
            defaults: self.defaults,
            outputs: self.outputs,
            initializers: self.initializers,
            nodes: self.nodes,
            operators: self.operators,
        }
    }
}

impl ModelParts {
    /// The model of these parts. Nodes whose outputs nothing reads and initializers that nothing
    /// reads are dropped, nodes are put in running order, and the version of the file format is that
    /// of the operator set and of the stored types at least.
    ///
    /// # Errors
    /// [`crate::Error::Graph`] for a name that is read and never defined, or defined twice;
    /// [`crate::Error::Cycle`].
    pub fn finish(mut self) -> Result<Model> {
        self.drop_unread();
        let opset = self.opsets.get("").copied().unwrap_or(1);
        let since = IR_VERSIONS.iter().rev().find(|(since, _)| *since <= opset);
        let small = self.initializers.values().any(|tensor| tensor.dtype().bits() < 8);
        let least = since.map_or(0, |(_, version)| *version).max(if small { IR_INT4 } else { 0 });
        Model {
            name: self.name,
            producer: self.producer,
            ir_version: self.ir_version.max(least),
            opsets: self.opsets,
            metadata: self.metadata,
            inputs: self.inputs,
            defaults: self.defaults,
            outputs: self.outputs,
            initializers: self.initializers,
            nodes: self.nodes,
            operators: self.operators,
        }
        .validated()
    }

    /// Drops nodes and initializers whose values reach no output.
    fn drop_unread(&mut self) {
        let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            makers.extend(node.outputs.iter().map(|name| (name.as_str(), index)));
        }
        let mut reached: std::collections::BTreeSet<String> =
            self.outputs.iter().map(|output| output.name.clone()).collect();
        let mut used = vec![false; self.nodes.len()];
        let mut open: Vec<String> = reached.iter().cloned().collect();
        while let Some(name) = open.pop() {
            let Some(&index) = makers.get(name.as_str()) else { continue };
            if std::mem::replace(&mut used[index], true) {
                continue;
            }
            for read in self.nodes[index].reads() {
                if reached.insert(read.to_owned()) {
                    open.push(read.to_owned());
                }
            }
        }
        let mut used = used.into_iter();
        self.nodes.retain(|_| used.next() == Some(true));
        let defaults = &self.defaults;
        self.initializers.retain(|name, _| {
            reached.contains(name) || defaults.iter().any(|default| default.name == *name)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::{GraphBuilder, Model, Result};
    use lgp_memory::{DType, Tensor, TensorType};

    fn model() -> Result<Model> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone());
        let w = g.initializer("w", Tensor::scalar(2f32)?);
        let y = g.node("Mul", &[x, w], []);
        let y = g.node("Relu", &[y], []);
        g.output("y", y, ty);
        g.finish()
    }

    #[test]
    fn parts_make_the_same_model() -> Result<()> {
        assert_eq!(model()?.into_parts().finish()?, model()?);
        let mut parts = model()?.into_parts();
        parts.opsets.insert(String::new(), 22);
        assert_eq!(parts.finish()?.ir_version(), 10);
        Ok(())
    }

    #[test]
    fn what_reaches_no_output_is_dropped() -> Result<()> {
        let mut parts = model()?.into_parts();
        let relu = parts.nodes.iter().position(|node| node.op_type == "Relu").unwrap();
        parts.nodes[relu].inputs = vec!["x".into()];
        let model = parts.finish()?;
        assert_eq!((model.nodes().len(), model.parameters()), (1, 0));
        Ok(())
    }

    #[test]
    fn broken_parts_are_refused() -> Result<()> {
        let mut parts = model()?.into_parts();
        parts.initializers.clear();
        assert!(parts.finish().unwrap_err().to_string().contains("reads 'w'"));
        Ok(())
    }
}
