//! The built-in steps: a table, and a file for each step.

mod decode;
mod nms;
mod normalise;
mod resize;
mod softmax;
mod top_k;

use super::file::ModelName;
use super::kind::Kind;
use super::value::Value;
use crate::fault::Fault;
use crate::oip;
use lgp_common::plainly;
use lgp_sdk::tensor::{DType, Dim, Tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use toml::Table;

/// The most images in one step.
const PICTURES_MAX: usize = 64;
/// The most pixels of all images in one step.
const PIXELS_MAX: u64 = 64 << 20;

/// Makes a step from its parameters.
type Make = fn(Table) -> Result<Arc<dyn BuiltIn>, String>;

/// Every built-in step by its name in `use`.
const STEPS: [(&str, Make); 6] = [
    ("decode", made::<decode::Decode>),
    ("resize", made::<resize::Resize>),
    ("normalise", made::<normalise::Normalise>),
    ("softmax", made::<softmax::Softmax>),
    ("top_k", made::<top_k::TopK>),
    ("nms", made::<nms::Nms>),
];

/// A built-in step with its parameters.
pub(super) trait BuiltIn: fmt::Debug + Send + Sync {
    /// The required inputs.
    fn needs(&self) -> &'static [&'static str];

    /// The optional inputs.
    fn may_have(&self) -> &'static [&'static str] {
        &[]
    }

    /// The kinds of the outputs for inputs of these kinds.
    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String>;

    /// The model whose labels the step needs.
    fn labels(&self) -> Option<&ModelName> {
        None
    }

    /// Bytes that the step will take, or an error if they are too many.
    fn room(&self, _given: &Given<Value>) -> Result<usize, Fault> {
        Ok(0)
    }

    /// Whether the step is slow even for few bytes.
    fn is_slow(&self) -> bool {
        false
    }

    fn run(&self, given: Given<Value>, labels: &[String]) -> Result<Made<Value>, Fault>;
}

/// A step's outputs.
pub(super) type Made<T> = Vec<(&'static str, T)>;

/// A step's connected inputs.
#[derive(Debug)]
pub(super) struct Given<T>(pub(super) Vec<Joint<T>>);

#[derive(Debug)]
pub(super) struct Joint<T> {
    pub(super) port: String,
    /// The value's name in messages.
    pub(super) label: String,
    pub(super) value: T,
}

impl<T> Given<T> {
    fn find(&self, port: &str) -> Option<&T> {
        self.0.iter().find(|joint| joint.port == port).map(|joint| &joint.value)
    }

    fn label(&self, port: &str) -> &str {
        self.0.iter().find(|joint| joint.port == port).map_or("", |joint| &joint.label)
    }
}

impl Given<Kind> {
    fn need(&self, port: &str) -> Result<&Kind, String> {
        self.find(port).ok_or_else(|| format!("input '{port}' gets no value"))
    }

    /// The images of an input, all with the same number of channels.
    fn pictures(&self, port: &str) -> Result<&Kind, String> {
        match self.need(port)? {
            kind @ Kind::Pictures { .. } => Ok(kind),
            other => Err(format!(
                "input '{port}' gets {}, which is {other}, expected pictures of decode or resize",
                self.label(port)
            )),
        }
    }

    /// Dimensions of an input of floating-point numbers, if known.
    fn floats(&self, port: &str) -> Result<Option<Vec<Dim>>, String> {
        let ty = self.need(port)?.as_tensor();
        match ty.dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(ty.shape.map(|shape| shape.0)),
            other => Err(format!(
                "input '{port}' gets {}, which is {}, expected FP32, FP16 or BF16",
                self.label(port),
                oip::datatype_name(other)
            )),
        }
    }
}

impl Given<Value> {
    fn need(&self, port: &str) -> Result<&Value, Fault> {
        self.find(port).ok_or_else(|| Fault::internal("a step lacks an input that was checked"))
    }

    fn take(&mut self, port: &str) -> Result<Value, Fault> {
        let at = self.0.iter().position(|joint| joint.port == port);
        let at = at.ok_or_else(|| Fault::internal("a step lacks an input that was checked"))?;
        Ok(self.0.swap_remove(at).value)
    }
}

/// Makes the step with this name.
pub(super) fn find(name: &str, parameters: Table) -> Result<Arc<dyn BuiltIn>, String> {
    let known = STEPS.iter().find(|(known, _)| *known == name);
    let (_, make) = known.ok_or_else(|| {
        let names = STEPS.map(|(name, _)| name).join(", ");
        format!("use = \"{name}\" is no step, expected one of {names}")
    })?;
    make(parameters)
}

/// A step that is deserialized from its parameters and checks them.
trait Checked: DeserializeOwned + BuiltIn + 'static {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn made<T: Checked>(parameters: Table) -> Result<Arc<dyn BuiltIn>, String> {
    let step: T = toml::Value::Table(parameters)
        .try_into()
        .map_err(|error: toml::de::Error| plainly(&error.message().replace('\n', ", ")))?;
    step.check()?;
    Ok(Arc::new(step))
}

/// Deserializes a model's name.
fn model_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ModelName>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// The floating-point numbers of a value.
fn floats(tensor: &Tensor) -> Result<Cow<'_, [f32]>, Fault> {
    oip::floats(tensor).ok_or_else(|| {
        let datatype = oip::datatype_name(tensor.dtype());
        Fault::bad_input(format!("scores are {datatype}, expected FP32, FP16 or BF16"))
    })
}

/// The number of rows of a tensor: its first dimension, if it has more than one.
fn rows(dims: &[usize]) -> usize {
    match dims {
        [rows, _, ..] => *rows,
        _ => 1,
    }
}

/// The label of a class, or its index without a label.
fn label(labels: &[String], class: usize) -> String {
    labels.get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// Adds the labels' output only if there are labels.
fn with_labels<T>(made: &mut Made<T>, port: &'static str, has: bool, kind: T) {
    if has {
        made.push((port, kind));
    }
}

/// Refuses more images or pixels than one step takes.
fn check_pixels(label: &str, count: usize, pixels: u64) -> Result<(), Fault> {
    if count > PICTURES_MAX {
        return Err(Fault::bad_input(format!(
            "{label} has {count} pictures, expected at most {PICTURES_MAX}"
        )));
    }
    if pixels > PIXELS_MAX {
        return Err(Fault::bad_input(format!(
            "{label} has {pixels} pixels, expected at most {PIXELS_MAX} of all pictures together"
        )));
    }
    Ok(())
}

fn tensor<T: lgp_sdk::tensor::Element>(shape: Vec<usize>, data: &[T]) -> Result<Value, Fault> {
    Tensor::from_slice(shape, data).map(Value::Tensor).map_err(Fault::internal)
}

fn texts(shape: Vec<usize>, texts: &[String]) -> Result<Value, Fault> {
    Tensor::from_strings(shape, texts).map(Value::Tensor).map_err(Fault::internal)
}

#[cfg(test)]
mod tests;
