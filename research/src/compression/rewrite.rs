//! The small rewrites that quantised models are made of: stored integers, and the nodes that
//! quantise and dequantise.

use crate::error::Result;
use lgp_inference::{Attr, ModelNode, ModelParts};
use lgp_memory::Tensor;
use std::collections::{BTreeMap, HashSet};

/// The domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// The first operator set whose `DequantizeLinear` takes 4 bits.
const OPSET_INT4: i64 = 21;

/// A model under change: its parts, and names that are free.
pub(crate) struct Rewrite {
    pub(crate) parts: ModelParts,
    used: HashSet<String>,
}

impl Rewrite {
    pub(crate) fn new(parts: ModelParts) -> Self {
        let made = parts.nodes.iter().flat_map(|node| &node.outputs);
        let given = parts.inputs.iter().map(|input| &input.name);
        let used = made.chain(given).chain(parts.initializers.keys()).cloned().collect();
        Self { parts, used }
    }

    /// A name that the model did not use; it does now.
    pub(crate) fn name(&mut self, stem: &str) -> String {
        let numbered = (1..).map(|n| format!("{stem}.{n}"));
        let mut names = std::iter::once(stem.to_owned()).chain(numbered);
        let name = names.find(|name| !self.used.contains(name)).unwrap_or_default();
        self.used.insert(name.clone());
        name
    }

    /// Stores a tensor under a free name.
    pub(crate) fn store(&mut self, stem: &str, tensor: Tensor) -> String {
        let name = self.name(stem);
        self.parts.initializers.insert(name.clone(), tensor);
        name
    }

    /// Adds a node of one output, whose name it answers.
    pub(crate) fn node<const N: usize>(
        &mut self,
        op: (&str, &str),
        stem: &str,
        inputs: &[&str],
        attributes: [(&str, Attr); N],
    ) -> String {
        let output = self.name(stem);
        self.node_to(op, inputs, attributes, output.clone());
        output
    }

    /// Adds a node that makes the value of this name.
    pub(crate) fn node_to<const N: usize>(
        &mut self,
        (domain, op_type): (&str, &str),
        inputs: &[&str],
        attributes: [(&str, Attr); N],
        output: String,
    ) {
        let attributes: BTreeMap<String, Attr> =
            attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if !domain.is_empty() {
            self.parts.opsets.entry(domain.to_owned()).or_insert(1);
        }
        self.parts.nodes.push(ModelNode {
            name: format!("{output}.node"),
            op_type: op_type.to_owned(),
            domain: domain.to_owned(),
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![output],
            attributes,
        });
    }

    /// Dequantises stored integers: `(codes − zero) · scale`, with scales along an axis or one
    /// scale. A zero point of 0 in all places is left out.
    pub(crate) fn dequantized(
        &mut self,
        stem: &str,
        codes: Tensor,
        (scales, zeros): (Tensor, Option<Tensor>),
        axis: Option<usize>,
    ) -> Result<String> {
        // ONNX's own operator takes 4 bits since opset 21, ONNX Runtime's under any.
        let own = self.parts.opsets.get("").is_some_and(|opset| *opset >= OPSET_INT4);
        let domain = if codes.dtype().bits() >= 8 || own { "" } else { MICROSOFT };
        let codes = self.store(&format!("{stem}.codes"), codes);
        let scales = self.store(&format!("{stem}.scale"), scales);
        let zeros = zeros.map(|zeros| self.store(&format!("{stem}.zero"), zeros));
        let mut inputs = vec![codes.as_str(), scales.as_str()];
        inputs.extend(zeros.as_deref());
        let op = (domain, "DequantizeLinear");
        let stem = format!("{stem}.floats");
        Ok(match axis.and_then(|axis| i64::try_from(axis).ok()) {
            Some(axis) => self.node(op, &stem, &inputs, [("axis", axis.into())]),
            None => self.node(op, &stem, &inputs, []),
        })
    }

    /// Rounds a value to u8 and back: `QuantizeLinear` and `DequantizeLinear` with one scale.
    /// Answers the name of the rounded value.
    pub(crate) fn rounded(&mut self, value: &str, scale: f32, zero: u8) -> Result<String> {
        let scale = self.store(&format!("{value}.scale"), Tensor::scalar(scale)?);
        let zero = self.store(&format!("{value}.zero"), Tensor::scalar(zero)?);
        let bytes = self.node(
            ("", "QuantizeLinear"),
            &format!("{value}.bytes"),
            &[value, &scale, &zero],
            [],
        );
        let stem = format!("{value}.rounded");
        Ok(self.node(("", "DequantizeLinear"), &stem, &[&bytes, &scale, &zero], []))
    }

    /// Lets a node read another value in the place of one of its inputs.
    pub(crate) fn redirect(&mut self, node: usize, input: usize, value: &str) {
        let place = self.parts.nodes.get_mut(node).and_then(|node| node.inputs.get_mut(input));
        if let Some(place) = place {
            value.clone_into(place);
        }
    }
}
