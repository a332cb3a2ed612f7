//! Floats of another width in a model's file: stored narrow, computed as before.

use crate::error::{Error, Result};
use crate::model::{Attr, Model, ModelNode};
use half::{bf16, f16};
use lgp_memory::{DType, Tensor};
use std::collections::BTreeMap;

/// ONNX's number of `f32`.
const FLOAT: i64 = 1;

impl Model {
    /// The model with its `f32` tensors stored as `dtype`: `f16` or `bf16`, each followed by a `Cast`
    /// to `f32`, so that every other node stays as it is. With `f32` such tensors are widened and
    /// their `Cast`s go.
    ///
    /// # Errors
    /// [`Error::Export`] for another dtype or an operator set whose `Cast` does not know it,
    /// [`Error::Tensor`] for a number that `f16` cannot hold.
    pub fn with_stored_floats(&self, dtype: DType) -> Result<Self> {
        let since = match dtype {
            DType::F32 => return self.widened(),
            DType::F16 => 9,
            DType::BF16 => 13,
            other => {
                let message = format!("weights as {other}, expected f32, f16 or bf16");
                return Err(Error::Export { message });
            }
        };
        if self.opset() < since {
            let message =
                format!("opset {} casts no {dtype}, expected {since} or later", self.opset());
            return Err(Error::Export { message });
        }
        let mut model = self.clone();
        let mut casts = Vec::new();
        for (name, tensor) in self.initializers.iter().filter(|(_, t)| t.dtype() == DType::F32) {
            let fail = |message| Error::Tensor { tensor: name.clone(), message };
            let stored = format!("{name}.{dtype}");
            model.initializers.remove(name);
            model.initializers.insert(stored.clone(), cast(tensor, dtype).map_err(fail)?);
            casts.push(ModelNode {
                name: format!("{name}.cast"),
                op_type: "Cast".into(),
                domain: String::new(),
                inputs: vec![stored],
                outputs: vec![name.clone()],
                attributes: BTreeMap::from([("to".to_owned(), Attr::Int(FLOAT))]),
            });
        }
        model.nodes.splice(0..0, casts);
        model.validated()
    }

    /// The model with every stored tensor that is cast to `f32` stored so.
    fn widened(&self) -> Result<Self> {
        let mut model = self.clone();
        let mut kept = Vec::new();
        for node in std::mem::take(&mut model.nodes) {
            let to_float = node.op_type == "Cast"
                && node.domain.is_empty()
                && node.attributes.get("to") == Some(&Attr::Int(FLOAT));
            let stored = node.inputs.first().and_then(|input| self.initializers.get(input));
            match (stored.map(|t| cast(t, DType::F32)), node.outputs.first()) {
                (Some(Ok(wide)), Some(output)) if to_float => {
                    model.initializers.insert(output.clone(), wide);
                }
                _ => kept.push(node),
            }
        }
        model.nodes = kept;
        let narrow = |t: &Tensor| matches!(t.dtype(), DType::F16 | DType::BF16);
        let read = |name: &String| {
            model.nodes.iter().any(|node| node.reads().any(|read| read == name))
                || model.outputs.iter().any(|output| output.name == *name)
        };
        let gone = model.initializers.iter().filter(|(name, t)| narrow(t) && !read(name));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        model.initializers.retain(|name, _| !gone.contains(name));
        model.validated()
    }
}

/// The tensor with elements of another dtype: its own, or one float of at most 32 bits to another.
pub(super) fn cast(tensor: &Tensor, dtype: DType) -> Result<Tensor, String> {
    let given = tensor.dtype();
    if given == dtype {
        return Ok(tensor.clone());
    }
    let shape = || tensor.shape().clone();
    let text = |e: lgp_memory::Error| e.to_string();
    let values: Vec<f32> = match given {
        DType::F32 => tensor.as_slice::<f32>().map_err(text)?.to_vec(),
        DType::F16 => tensor.as_slice::<f16>().map_err(text)?.iter().map(|v| v.to_f32()).collect(),
        DType::BF16 => {
            tensor.as_slice::<bf16>().map_err(text)?.iter().map(|v| v.to_f32()).collect()
        }
        _ => return Err(format!("its dtype is {given}, expected {dtype}")),
    };
    match dtype {
        DType::F32 => Tensor::from_slice(shape(), &values).map_err(text),
        DType::BF16 => {
            let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
            Tensor::from_slice(shape(), &values).map_err(text)
        }
        DType::F16 => {
            let lost = |v: &&f32| v.is_finite() && !f16::from_f32(**v).is_finite();
            if let Some(value) = values.iter().find(lost) {
                return Err(format!("{value} is too large for f16"));
            }
            let values: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
            Tensor::from_slice(shape(), &values).map_err(text)
        }
        _ => Err(format!("its dtype is {given}, expected {dtype}")),
    }
}
