//! A checked ensemble: every value is made once, before it is read, and has a type that fits its readers.

use super::draft::{Draft, Step, Work, nobody_makes};
use super::file::ModelName;
use super::kind::Kind;
use super::steps::{BuiltIn, Given, Joint};
use lgp_memory::ValueKind;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{Dim, SymShape, TensorType};
use std::collections::HashMap;

/// What a step must know of a model to run it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature<'a> {
    pub(crate) inputs: &'a [ValueSpec],
    pub(crate) outputs: &'a [ValueSpec],
    pub(crate) keeps_sequences: bool,
}

/// A checked ensemble.
#[derive(Debug)]
pub(crate) struct Ensemble {
    inputs: Vec<ValueSpec>,
    outputs: Vec<ValueSpec>,
    /// The value of each output.
    pub(super) answered: Vec<String>,
    pub(super) steps: Vec<Step>,
}

impl Ensemble {
    pub(crate) fn inputs(&self) -> &[ValueSpec] {
        &self.inputs
    }

    pub(crate) fn outputs(&self) -> &[ValueSpec] {
        &self.outputs
    }

    /// Whether a step runs this model. Of other models, the steps need the labels alone.
    pub(crate) fn runs(&self, model: &ModelName) -> bool {
        self.steps.iter().any(|step| matches!(&step.work, Work::Model(run) if run == model))
    }
}

impl Draft {
    /// Checks the types of all connections and makes the ensemble; `signature` looks models up.
    ///
    /// # Errors
    /// If types contradict one another, or an input is not connected.
    pub(crate) fn with<'a>(
        self,
        signature: impl Fn(&ModelName) -> Option<Signature<'a>>,
    ) -> Result<Ensemble, String> {
        let Self { inputs, outputs, steps } = self;
        let typed = |spec: &ValueSpec| (spec.name.clone(), Kind::Tensor(spec.ty.clone()));
        let mut kinds: HashMap<String, Kind> = inputs.iter().map(typed).collect();
        for step in &steps {
            let made = match &step.work {
                Work::BuiltIn(work) => built_in(work.as_ref(), step, &inputs, &kinds),
                Work::Model(name) => match signature(name) {
                    Some(model) => of_model(model, step, &kinds),
                    None => Err(format!("no model '{name}'")),
                },
            };
            kinds.extend(made.map_err(|reason| format!("{}: {reason}", step.title))?);
        }
        let spec = |(name, value): &(String, String)| {
            let ty = kinds.get(value).map(Kind::as_tensor);
            ty.map(|ty| ValueSpec::tensor(name.clone(), ty))
                .ok_or_else(|| nobody_makes(&format!("output '{name}'"), value))
        };
        let answered = outputs.iter().map(|(_, value)| value.clone()).collect();
        let outputs = outputs.iter().map(spec).collect::<Result<_, _>>()?;
        Ok(Ensemble { inputs, outputs, answered, steps })
    }
}

/// The name of a value in messages. Inputs of requests have the name that clients know.
pub(super) fn label(inputs: &[ValueSpec], value: &str) -> String {
    match inputs.iter().any(|input| input.name == value) {
        true => format!("input '{value}'"),
        false => format!("value '{value}'"),
    }
}

/// The kinds of a step's outputs.
type Kinds = Result<Vec<(String, Kind)>, String>;

fn built_in(
    work: &dyn BuiltIn,
    step: &Step,
    inputs: &[ValueSpec],
    kinds: &HashMap<String, Kind>,
) -> Kinds {
    let (needs, may_have) = (work.needs(), work.may_have());
    let known = || needs.iter().chain(may_have).copied();
    if let Some(port) = step.inputs.keys().find(|port| !known().any(|known| known == **port)) {
        let known = known().collect::<Vec<_>>().join(", ");
        return Err(format!("it has no input '{port}', expected {known}"));
    }
    if let Some(port) = needs.iter().find(|port| !step.inputs.contains_key(**port)) {
        return Err(format!("input '{port}' gets no value"));
    }
    let joint = |(port, value): (&String, &String)| {
        let label = label(inputs, value);
        let kind = kinds.get(value).cloned();
        kind.map(|kind| Joint { port: port.clone(), label, value: kind })
    };
    let given = Given(step.inputs.iter().filter_map(joint).collect());
    let made = work.kinds(&given)?;
    let kind = |(port, value): (&String, &String)| {
        let found = made.iter().find(|(known, _)| known == port);
        let (_, kind) = found.ok_or_else(|| {
            let known = made.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            let hint = match port.starts_with("label") {
                true => "; labels = \"MODEL\" says whose labels.txt names the classes",
                false => "",
            };
            format!("it has no output '{port}', expected {known}{hint}")
        })?;
        Ok((value.clone(), kind.clone()))
    };
    step.outputs.iter().map(kind).collect()
}

fn of_model(model: Signature<'_>, step: &Step, kinds: &HashMap<String, Kind>) -> Kinds {
    let Signature { inputs, outputs, keeps_sequences } = model;
    let list = |specs: &[ValueSpec]| {
        specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if keeps_sequences {
        return Err("it keeps sequences, expected a model that steps can run alone".to_owned());
    }
    for spec in inputs {
        let value = step.inputs.get(&spec.name);
        let value = value.ok_or_else(|| format!("input '{}' gets no value", spec.name))?;
        let kind = kinds.get(value).ok_or_else(|| nobody_makes("it", value))?;
        kind.fits(&spec.ty).map_err(|reason| {
            format!("input '{}' cannot take value '{value}': {reason}", spec.name)
        })?;
    }
    let of = |specs: &[ValueSpec], port: &str| specs.iter().any(|spec| spec.name == port);
    if let Some(port) = step.inputs.keys().find(|port| !of(inputs, port)) {
        return Err(format!("it has no input '{port}', expected {}", list(inputs)));
    }
    let kind = |(port, value): (&String, &String)| {
        let spec = outputs.iter().find(|spec| spec.name == *port);
        let spec =
            spec.ok_or_else(|| format!("it has no output '{port}', expected {}", list(outputs)))?;
        match spec.kind {
            ValueKind::Tensor => Ok((value.clone(), Kind::Tensor(unnamed(&spec.ty)))),
            _ => Err(format!("output '{port}' is no tensor")),
        }
    };
    step.outputs.iter().map(kind).collect()
}

/// Drops symbol names, which have a meaning within their model only.
fn unnamed(ty: &TensorType) -> TensorType {
    let dim = |dim: &Dim| dim.known().map_or(Dim::Unknown, Dim::Known);
    let shape = ty.shape.as_ref().map(|shape| SymShape(shape.0.iter().map(dim).collect()));
    TensorType { dtype: ty.dtype, shape }
}
