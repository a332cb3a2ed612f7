//! The syntax of `ensemble.toml`. Its names are not resolved yet.
#![deny(clippy::as_conversions)]

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The file in a model's folder that makes it an ensemble.
pub(crate) const FILE: &str = "ensemble.toml";
/// The largest such file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 10;
/// The most steps of an ensemble.
const STEPS_MAX: usize = 32;
/// The most inputs, and the most outputs.
const PORTS_MAX: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    steps: Vec<Table>,
}

/// An input of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) datatype: String,
    /// The sizes of the dimensions; −1 is open.
    pub(super) shape: Vec<i64>,
}

/// An output of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    pub(super) name: String,
    /// The value of the output; by default the value with its name.
    value: Option<String>,
}

impl Output {
    pub(super) fn value(&self) -> &str {
        self.value.as_deref().unwrap_or(&self.name)
    }
}

/// Ports of a step, and the values connected to them.
pub(super) type Joints = BTreeMap<String, String>;

#[derive(Debug)]
pub(super) struct Step {
    pub(super) work: Work,
    pub(super) inputs: Joints,
    pub(super) outputs: Joints,
}

#[derive(Debug)]
pub(super) enum Work {
    /// A built-in step, with its parameters.
    Use(String, Table),
    Model(ModelName),
}

/// A model's name in a step: `NAME` or `NAME/VERSION`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModelName {
    pub(crate) name: String,
    pub(crate) version: Option<u64>,
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}/{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl std::str::FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = match text.split_once('/') {
            None => (text, None),
            Some((name, version)) => {
                let number = version.parse().ok().filter(|&number| number > 0);
                let number = number
                    .ok_or_else(|| format!("model '{text}', expected NAME or NAME/VERSION"))?;
                (name, Some(number))
            }
        };
        Ok(Self { name: name.to_owned(), version })
    }
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) steps: Vec<Step>,
}

/// Parses the text of a file.
pub(super) fn parse(text: &str) -> Result<Written, String> {
    let File { inputs, outputs, steps } = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| {
            let before = text.as_bytes().get(..span.start).unwrap_or_default();
            format!("line {}: ", before.iter().filter(|byte| **byte == b'\n').count() + 1)
        });
        format!("{}{}", line.unwrap_or_default(), error.message().replace('\n', ", "))
    })?;
    for (what, count, most) in [
        ("inputs", inputs.len(), PORTS_MAX),
        ("outputs", outputs.len(), PORTS_MAX),
        ("steps", steps.len(), STEPS_MAX),
    ] {
        if !(1..=most).contains(&count) {
            return Err(format!("{count} {what}, expected 1 to {most}"));
        }
    }
    let steps = steps
        .into_iter()
        .zip(1..)
        .map(|(table, number)| step(table).map_err(|reason| format!("step {number}: {reason}")));
    Ok(Written { inputs, outputs, steps: steps.collect::<Result<_, _>>()? })
}

fn step(mut table: Table) -> Result<Step, String> {
    let work = match (text(&mut table, "use")?, text(&mut table, "model")?) {
        (Some(name), None) => Err(name),
        (None, Some(model)) => Ok(model.parse::<ModelName>()?),
        _ => return Err("expected either use = \"STEP\" or model = \"NAME\"".to_owned()),
    };
    let (inputs, outputs) = (joints(&mut table, "inputs")?, joints(&mut table, "outputs")?);
    let work = match work {
        Err(name) => Work::Use(name, table),
        Ok(model) => match table.keys().next() {
            None => Work::Model(model),
            Some(key) => {
                return Err(format!(
                    "unknown parameter '{key}', expected model, inputs and outputs alone"
                ));
            }
        },
    };
    Ok(Step { work, inputs, outputs })
}

fn text(table: &mut Table, key: &str) -> Result<Option<String>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key} is a {}, expected a string", other.type_str())),
    }
}

fn joints(table: &mut Table, key: &str) -> Result<Joints, String> {
    let given = table.remove(key).ok_or_else(|| format!("it has no {key}"))?;
    let joints: Joints = given.try_into().map_err(|error| format!("{key}: {}", error.message()))?;
    match joints.len() {
        0 => Err(format!("{key} names nothing")),
        _ => Ok(joints),
    }
}
