//! A model that keeps sequences: the inputs and outputs that the server handles itself, and their values.
#![deny(clippy::as_conversions)]

use super::asked::{Asked, SequenceId};
use crate::deployment::{ControlKind, Sequences as Wish};
use crate::fault::Fault;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, NamedTensor, Shape, SymShape, Tensor};
use std::collections::HashMap;
use std::time::Duration;

/// The most elements of a control input, which may have one for each row of another input.
const CONTROL_ELEMENTS_MAX: usize = 1 << 16;

/// The sequence settings of one version of a model.
#[derive(Debug)]
pub(crate) struct Stateful {
    wish: Wish,
    /// All of the model's inputs and outputs.
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    /// Why this version cannot follow the settings.
    misfit: Option<String>,
}

impl Stateful {
    pub(crate) fn new(
        name: &str,
        wish: Wish,
        inputs: Vec<ValueSpec>,
        outputs: Vec<ValueSpec>,
    ) -> Self {
        let misfit = wish.check(name, &inputs, &outputs).err().map(|error| error.to_string());
        Self { wish, inputs, outputs, misfit }
    }

    /// The settings of its sequences.
    pub(crate) fn wish(&self) -> &Wish {
        &self.wish
    }

    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// The inputs that clients give.
    pub(crate) fn visible_inputs(&self) -> Vec<ValueSpec> {
        let Wish { states, controls, .. } = &self.wish;
        let ours = |name: &str| {
            states.iter().any(|state| state.input == name)
                || controls.iter().any(|control| control.input == name)
        };
        self.inputs.iter().filter(|spec| !ours(&spec.name)).cloned().collect()
    }

    /// The outputs that clients get.
    pub(crate) fn visible_outputs(&self) -> Vec<ValueSpec> {
        let ours = |name: &str| self.wish.states.iter().any(|state| state.output == name);
        self.outputs.iter().filter(|spec| !ours(&spec.name)).cloned().collect()
    }

    /// The input of each state, with the name of its output.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&ValueSpec, &str)> {
        self.wish
            .states
            .iter()
            .filter_map(|state| Some((self.find(&state.input)?, state.output.as_str())))
    }

    /// Each control input.
    pub(crate) fn controls(&self) -> impl Iterator<Item = (&str, ControlKind, DType)> {
        self.wish.controls.iter().filter_map(|control| {
            let spec = self.find(&control.input)?;
            Some((spec.name.as_str(), control.kind, spec.ty.dtype))
        })
    }

    /// Idle time after which a sequence ends, in microseconds.
    pub(crate) fn idle_us(&self) -> u64 {
        self.wish.idle_ms.get().saturating_mul(1_000)
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.wish.idle_ms.get())
    }

    /// Refuses a version that cannot follow the settings.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match &self.misfit {
            Some(reason) => Err(Fault::bad_input(reason.clone())),
            None => Ok(()),
        }
    }

    /// Types and shapes of the states of a sequence that begins with these inputs. The states are zeros; their size
    /// is not checked yet.
    pub(super) fn first(
        &self,
        given: &[NamedTensor],
    ) -> Result<Vec<(String, DType, Shape)>, Fault> {
        let sizes = self.sizes(given);
        let states = self.wish.states.iter().map(|state| {
            let spec = self.input(&state.input)?;
            Ok((spec.name.clone(), spec.ty.dtype, shape(spec, &sizes)))
        });
        states.collect()
    }

    /// The control inputs for an inference, given its other inputs.
    pub(super) fn told(
        &self,
        given: &[NamedTensor],
        asked: &Asked,
    ) -> Result<Vec<NamedTensor>, Fault> {
        let sizes = self.sizes(given);
        let told = self.wish.controls.iter().map(|control| {
            let spec = self.input(&control.input)?;
            let shape = shape(spec, &sizes);
            let count = shape.elements().unwrap_or(usize::MAX);
            if count > CONTROL_ELEMENTS_MAX {
                return Err(Fault::bad_input(format!(
                    "with these inputs the model's input '{}' has {count} elements, expected at most \
                     {CONTROL_ELEMENTS_MAX}",
                    spec.name
                )));
            }
            Ok(NamedTensor::new(spec.name.clone(), say(control.kind, spec, (shape, count), asked)?))
        });
        told.collect()
    }

    /// Removes the states from the outputs, and names them by the inputs of the next inference.
    pub(super) fn taken(&self, outputs: &mut Vec<NamedTensor>) -> Result<Vec<NamedTensor>, Fault> {
        let find = |name: &str| outputs.iter().find(|output| output.name == name);
        let states = self.wish.states.iter().map(|state| {
            let output = find(&state.output).ok_or_else(|| {
                let name = &state.output;
                Fault::internal(format!("the model did not answer its state '{name}'"))
            })?;
            Ok(NamedTensor::new(state.input.clone(), output.tensor.clone()))
        });
        let states = states.collect::<Result<_, Fault>>()?;
        outputs.retain(|output| !self.wish.states.iter().any(|state| state.output == output.name));
        Ok(states)
    }

    fn input(&self, name: &str) -> Result<&ValueSpec, Fault> {
        self.find(name).ok_or_else(|| Fault::internal(format!("a model lost its input '{name}'")))
    }

    fn find(&self, name: &str) -> Option<&ValueSpec> {
        self.inputs.iter().find(|spec| spec.name == name)
    }

    /// The sizes of the model's symbolic dimensions in the given inputs.
    fn sizes<'a>(&'a self, given: &[NamedTensor]) -> HashMap<&'a str, usize> {
        let mut sizes = HashMap::new();
        for input in given {
            let spec = self.find(&input.name);
            let dims = spec.and_then(|spec| spec.ty.shape.as_ref()).into_iter().flat_map(|s| &s.0);
            for (dim, &size) in dims.zip(input.tensor.shape().dims()) {
                if let Dim::Symbol(symbol) = dim {
                    sizes.entry(symbol.as_ref()).or_insert(size);
                }
            }
        }
        sizes
    }
}

/// A shape whose open dimensions take the given sizes, or 1 if unknown.
fn shape(spec: &ValueSpec, sizes: &HashMap<&str, usize>) -> Shape {
    let length = |dim: &Dim| match dim {
        Dim::Known(length) => *length,
        Dim::Symbol(symbol) => sizes.get::<str>(symbol.as_ref()).copied().unwrap_or(1),
        Dim::Unknown => 1,
    };
    let dims = spec.ty.shape.as_ref().map(|SymShape(dims)| dims.iter().map(length).collect());
    let dims: Vec<usize> = dims.unwrap_or_default();
    dims.into()
}

/// A control input with its value in each element.
fn say(
    kind: ControlKind,
    spec: &ValueSpec,
    (shape, count): (Shape, usize),
    asked: &Asked,
) -> Result<Tensor, Fault> {
    let is_so = match kind {
        ControlKind::Start => asked.starts,
        ControlKind::End => asked.ends,
        ControlKind::Ready => true,
        ControlKind::CorrelationId => return name(spec, (shape, count), &asked.id),
    };
    let made = match spec.ty.dtype {
        DType::F32 => Tensor::from_slice(shape, &vec![f32::from(u8::from(is_so)); count]),
        DType::I32 => Tensor::from_slice(shape, &vec![i32::from(is_so); count]),
        DType::Bool => Tensor::from_slice(shape, &vec![is_so; count]),
        other => return Err(Fault::internal(format!("a control of {other} was let through"))),
    };
    made.map_err(Fault::internal)
}

/// The sequence's id, in each element.
fn name(
    spec: &ValueSpec,
    (shape, count): (Shape, usize),
    id: &SequenceId,
) -> Result<Tensor, Fault> {
    fn all<T: lgp_sdk::tensor::Element>(
        number: Result<T, std::num::TryFromIntError>,
        (shape, count): (Shape, usize),
    ) -> Option<Result<Tensor, Fault>> {
        let number = number.ok()?;
        Some(Tensor::from_slice(shape, &vec![number; count]).map_err(Fault::internal))
    }
    let of = (shape, count);
    let made = match (spec.ty.dtype, id) {
        (DType::U64, &SequenceId::Number(id)) => all(Ok(id), of),
        (DType::I64, &SequenceId::Number(id)) => all(i64::try_from(id), of),
        (DType::U32, &SequenceId::Number(id)) => all(u32::try_from(id), of),
        (DType::I32, &SequenceId::Number(id)) => all(i32::try_from(id), of),
        (DType::Str, SequenceId::Text(id)) => {
            Some(Tensor::from_strings(of.0, &vec![id; of.1]).map_err(Fault::internal))
        }
        _ => None,
    };
    made.unwrap_or_else(|| {
        let (name, expected) = (&spec.name, spec.ty.dtype);
        Err(Fault::bad_input(format!(
            "parameter sequence_id is {id}, expected one that the model's input '{name}' of {expected} \
             can hold"
        )))
    })
}

#[cfg(test)]
#[path = "stateful_tests.rs"]
mod tests;
