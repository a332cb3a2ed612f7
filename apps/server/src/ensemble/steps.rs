//! The built-in steps: a table, and a file for each.

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
use lgp_sdk::{DType, Dim, Tensor, plainly};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use toml::Table;

/// Pictures that one step takes.
const PICTURES_MAX: usize = 64;
/// Pixels of all of them together.
const PIXELS_MAX: u64 = 64 << 20;

/// Makes a step of its parameters.
type Make = fn(Table) -> Result<Arc<dyn BuiltIn>, String>;

/// Every built-in step by the name that `use` has for it.
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
    /// The inputs that it needs.
    fn needs(&self) -> &'static [&'static str];

    /// Those that it may have besides.
    fn may_have(&self) -> &'static [&'static str] {
        &[]
    }

    /// What it makes of such values, by output.
    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String>;

    /// The model whose labels it wants.
    fn labels(&self) -> Option<&ModelName> {
        None
    }

    /// Bytes that it will take, and whether there are too many.
    fn room(&self, _given: &Given<Value>) -> Result<usize, Fault> {
        Ok(0)
    }

    /// Whether it takes long, however few bytes it is given.
    fn is_slow(&self) -> bool {
        false
    }

    fn run(&self, given: Given<Value>, labels: &[String]) -> Result<Made<Value>, Fault>;
}

/// What a step makes, by output.
pub(super) type Made<T> = Vec<(&'static str, T)>;

/// What is joined to the inputs of a step.
#[derive(Debug)]
pub(super) struct Given<T>(pub(super) Vec<Joint<T>>);

#[derive(Debug)]
pub(super) struct Joint<T> {
    pub(super) port: String,
    /// What the value is called, for messages.
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

    /// Pictures of one number of channels.
    fn pictures(&self, port: &str) -> Result<&Kind, String> {
        match self.need(port)? {
            kind @ Kind::Pictures { .. } => Ok(kind),
            other => Err(format!(
                "input '{port}' gets {}, which is {other}, expected pictures of decode or resize",
                self.label(port)
            )),
        }
    }

    /// Dimensions of a tensor of floating-point numbers, if they are known.
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

/// The step of a name.
pub(super) fn find(name: &str, parameters: Table) -> Result<Arc<dyn BuiltIn>, String> {
    let known = STEPS.iter().find(|(known, _)| *known == name);
    let (_, make) = known.ok_or_else(|| {
        let names = STEPS.map(|(name, _)| name).join(", ");
        format!("use = \"{name}\" is no step, expected one of {names}")
    })?;
    make(parameters)
}

/// A step that is made of its parameters and checks them.
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

/// A model's name in a parameter.
fn model_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ModelName>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Floating-point numbers of a value.
fn floats(tensor: &Tensor) -> Result<Cow<'_, [f32]>, Fault> {
    oip::floats(tensor).ok_or_else(|| {
        let datatype = oip::datatype_name(tensor.dtype());
        Fault::bad_input(format!("scores are {datatype}, expected FP32, FP16 or BF16"))
    })
}

/// How many rows a tensor has: what its first dimension counts, where there are more.
fn rows(dims: &[usize]) -> usize {
    match dims {
        [rows, _, ..] => *rows,
        _ => 1,
    }
}

/// What a class is called: its number, where there is no label.
fn label(labels: &[String], class: usize) -> String {
    labels.get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// Without labels there is nothing to name classes by.
fn with_labels<T>(made: &mut Made<T>, port: &'static str, has: bool, kind: T) {
    if has {
        made.push((port, kind));
    }
}

/// Refuses more pictures or pixels than one step takes.
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

fn tensor<T: lgp_sdk::Element>(shape: Vec<usize>, data: &[T]) -> Result<Value, Fault> {
    Tensor::from_slice(shape, data).map(Value::Tensor).map_err(Fault::internal)
}

fn texts(shape: Vec<usize>, texts: &[String]) -> Result<Value, Fault> {
    Tensor::from_strings(shape, texts).map(Value::Tensor).map_err(Fault::internal)
}

#[cfg(test)]
mod tests;
