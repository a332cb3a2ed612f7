//! Stores a model's floats in another width; nodes compute as before.

use crate::error::{Error, Result};
use crate::model::{Attr, Model, ModelNode};
use half::{bf16, f16};
use lgp_memory::{DType, Tensor};
use std::collections::{BTreeMap, HashSet};

/// ONNX's number of `f32`.
const FLOAT: i64 = 1;
/// Tensors of fewer elements keep their type: they are the epsilons, limits and scales of a graph,
/// which need precision more than they take room.
const SMALL: usize = 16;
/// One in this many elements of a tensor may become 0. Some weights are always that close to 0 and
/// add nothing to a sum; if there are more of them, their small values matter.
const LOST_ONE_IN: usize = 1000;

/// The result of converting a model's `f32` tensors.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredFloats {
    /// Tensors whose elements have another width now.
    pub converted: usize,
    /// Tensors that kept their type because they have few elements.
    pub small: usize,
    /// Elements of converted tensors that became 0, because the new type has no smaller numbers.
    pub zeroed: usize,
    /// Tensors that kept their type because the new type cannot hold them.
    pub kept: Vec<KeptFloats>,
}

/// A stored tensor that keeps its type.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptFloats {
    /// The tensor's name in the model.
    pub initializer: String,
    /// An element that the narrower type cannot hold.
    pub value: f32,
}

impl Model {
    /// The model with its `f32` tensors stored as `dtype`: `f16` or `bf16`, each followed by a
    /// `Cast` to `f32`, so that every other node stays as it is. With `f32`, tensors stored like
    /// that are widened and their `Cast`s removed.
    ///
    /// Tensors of fewer than 16 elements keep their type, and so do tensors with a number that
    /// would become infinite, or with more than one number in a thousand that would become 0.
    ///
    /// # Errors
    /// [`Error::Export`] for another dtype or an operator set whose `Cast` does not know it.
    pub fn with_stored_floats(&self, dtype: DType) -> Result<(Self, StoredFloats)> {
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
        let made = self.nodes.iter().flat_map(|node| &node.outputs);
        let given = self.inputs.iter().map(|input| &input.name).chain(self.initializers.keys());
        let taken: HashSet<&String> = made.chain(given).collect();
        let mut casts = Vec::new();
        let mut report = StoredFloats::default();
        for (name, tensor) in self.initializers.iter().filter(|(_, t)| t.dtype() == DType::F32) {
            let fail = |message| Error::Tensor { tensor: name.clone(), message };
            if tensor.len() < SMALL {
                report.small += 1;
                continue;
            }
            match loss(tensor.as_slice()?, dtype) {
                Ok(zeroed) => report.zeroed += zeroed,
                Err(value) => {
                    report.kept.push(KeptFloats { initializer: name.clone(), value });
                    continue;
                }
            }
            report.converted += 1;
            let mut stored = format!("{name}.{dtype}");
            while taken.contains(&stored) || model.initializers.contains_key(&stored) {
                stored.push('_');
            }
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
        // A caller can no longer give a value that a node makes now.
        model.defaults.retain(|spec| model.initializers.contains_key(&spec.name));
        model.nodes.splice(0..0, casts);
        Ok((model.validated()?, report))
    }

    /// The model with `f32` instead of each stored tensor that is cast to `f32`.
    fn widened(&self) -> Result<(Self, StoredFloats)> {
        let mut model = self.clone();
        let mut report = StoredFloats::default();
        let mut kept = Vec::new();
        for node in std::mem::take(&mut model.nodes) {
            let to_float = node.op_type == "Cast"
                && node.domain.is_empty()
                && node.attributes.get("to") == Some(&Attr::Int(FLOAT));
            let stored = node.inputs.first().and_then(|input| self.initializers.get(input));
            match (stored.map(|t| cast(t, DType::F32)), node.outputs.first()) {
                (Some(Ok(wide)), Some(output)) if to_float => {
                    report.converted += 1;
                    model.initializers.insert(output.clone(), wide);
                }
                _ => kept.push(node),
            }
        }
        model.nodes = kept;
        let narrow = |t: &Tensor| matches!(t.dtype(), DType::F16 | DType::BF16);
        let outputs = model.outputs.iter().map(|output| output.name.as_str());
        let read: HashSet<&str> =
            model.nodes.iter().flat_map(ModelNode::reads).chain(outputs).collect();
        model.initializers.retain(|name, t| !narrow(t) || read.contains(name.as_str()));
        model.defaults.retain(|spec| model.initializers.contains_key(&spec.name));
        Ok((model.validated()?, report))
    }
}

/// How many of the numbers become 0 as `dtype`; or the number that forbids storing them so.
fn loss(values: &[f32], dtype: DType) -> Result<usize, f32> {
    let narrow = |v: f32| match dtype {
        DType::F16 => f16::from_f32(v).to_f32(),
        _ => bf16::from_f32(v).to_f32(),
    };
    let (mut lost, mut example) = (0usize, 0.);
    for &value in values.iter().filter(|v| v.is_finite() && **v != 0.) {
        let stored = narrow(value);
        if stored.is_infinite() {
            return Err(value);
        }
        if stored == 0. {
            (lost, example) = (lost + 1, value);
        }
    }
    if lost > values.len() / LOST_ONE_IN { Err(example) } else { Ok(lost) }
}

/// The tensor with elements of another dtype: its own, or a float of at most 32 bits from another.
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
                return Err(format!("{value:e} is too large for f16"));
            }
            let values: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
            Tensor::from_slice(shape(), &values).map_err(text)
        }
        _ => Err(format!("its dtype is {given}, expected {dtype}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use lgp_memory::TensorType;

    /// `y = x + a + b + …`
    fn model(tensors: &[(&str, Vec<f32>)]) -> Model {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut g = GraphBuilder::new("sums");
        let mut y = g.input("x", ty.clone());
        for (name, values) in tensors {
            let w = g.initializer(*name, Tensor::from_slice([values.len()], values).unwrap());
            y = g.node("Add", &[y, w], []);
        }
        g.output("y", y, ty);
        g.finish().unwrap()
    }

    fn dtypes(model: &Model) -> Vec<(&str, DType)> {
        model.initializers().iter().map(|(name, t)| (name.as_str(), t.dtype())).collect()
    }

    #[test]
    fn floats_are_stored_narrow_and_widened_again() -> Result<()> {
        // Whole numbers up to 250 are exact in both.
        let values = (0u8..=250).map(f32::from).collect();
        let given = model(&[("large", values), ("small", vec![1e-12])]);
        for dtype in [DType::F16, DType::BF16] {
            let (narrow, report) = given.with_stored_floats(dtype)?;
            assert_eq!(report, StoredFloats { converted: 1, small: 1, ..Default::default() });
            let large = format!("large.{dtype}");
            assert_eq!(dtypes(&narrow), [(large.as_str(), dtype), ("small", DType::F32)]);
            let back = Model::from_bytes(&narrow.to_onnx()?, None)?;
            let (back, report) = back.with_stored_floats(DType::F32)?;
            assert_eq!(back.initializers(), given.initializers());
            assert_eq!(report.converted, 1);
        }
        assert!(given.with_stored_floats(DType::I8).is_err());
        Ok(())
    }

    #[test]
    fn what_the_type_cannot_hold_is_kept_and_said() -> Result<()> {
        let with = |n: usize, odd: &[f32]| [vec![0.5; n], odd.to_vec()].concat();
        let given = model(&[
            ("mask", with(100, &[-3.4e38])),
            ("large", with(100, &[1e6])),
            ("tiny", with(100, &[1e-12])),
            ("weights", with(4000, &[1e-12, -1e-9])),
            ("open", with(100, &[f32::INFINITY, f32::NAN])),
        ]);
        let (narrow, report) = given.with_stored_floats(DType::F16)?;
        let kept: Vec<_> = report.kept.iter().map(|k| (k.initializer.as_str(), k.value)).collect();
        assert_eq!(kept, [("large", 1e6), ("mask", -3.4e38), ("tiny", 1e-12)]);
        assert_eq!((report.converted, report.zeroed), (2, 2));
        let stored: Vec<&str> = dtypes(&narrow).into_iter().map(|(name, _)| name).collect();
        assert_eq!(stored, ["large", "mask", "open.f16", "tiny", "weights.f16"]);
        let (_, report) = given.with_stored_floats(DType::BF16)?;
        assert_eq!((report.converted, report.kept.len(), report.zeroed), (4, 1, 0));
        assert_eq!(report.kept[0].initializer, "mask");
        Ok(())
    }

    #[test]
    fn stored_tensors_take_no_name_that_is_in_use() -> Result<()> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut g = GraphBuilder::new("names");
        let x = g.input("x", ty.clone());
        let w = g.initializer("w", Tensor::from_slice([16], &[1f32; 16])?);
        let same = g.initializer("w.f16", Tensor::from_slice([16], &[f16::from_f32(5.); 16])?);
        let same = g.node("Cast", &[same], [("to", FLOAT.into())]);
        let y = g.node("Add", &[x, w], []);
        let y = g.node("Mul", &[y, same], []);
        g.output("y", y, ty);
        let (narrow, _) = g.finish()?.with_stored_floats(DType::F16)?;
        assert_eq!(dtypes(&narrow), [("w.f16", DType::F16), ("w.f16_", DType::F16)]);
        assert_eq!(narrow.initializers()["w.f16"].as_slice::<f16>()?[0], f16::from_f32(5.));
        Ok(())
    }
}
