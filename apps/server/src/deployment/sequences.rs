//! A stateful model's settings of its clients' sequences.

use super::DeployError;
use lgp_inference::ValueSpec;
use lgp_memory::{DType, Dim, SymShape, ValueKind};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// One second, the default of Triton's `max_sequence_idle_microseconds`.
const IDLE_MS: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// Inferences with the same `sequence_id` form a sequence: they run in order, and each passes a state to the next.
///
/// ```
/// let wish: lgp_server::Sequences =
///     serde_json::from_str(r#"{"states": [{"input": "h", "output": "h_next"}]}"#)?;
/// assert_eq!(wish.idle_ms.get(), 1000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequences {
    /// Idle time in milliseconds after which a sequence ends.
    #[serde(default = "idle_ms")]
    pub idle_ms: NonZeroU64,
    /// Outputs that the sequence's next inference gets as inputs; its first one gets zeros.
    #[serde(default)]
    pub states: Vec<SequenceState>,
    /// Inputs that tell the model the position of an inference in its sequence.
    #[serde(default)]
    pub controls: Vec<SequenceControl>,
}

/// A state of a sequence: an output of the model that becomes an input of its next inference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceState {
    /// The input's name.
    pub input: String,
    /// The output's name.
    pub output: String,
}

/// An input that the server fills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceControl {
    /// The input's name.
    pub input: String,
    /// The value that the server fills in.
    pub kind: ControlKind,
}

/// Values of control inputs, with Triton's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// 1 in the first inference of a sequence, else 0.
    Start,
    /// 1 in the last one, else 0.
    End,
    /// Always 1: there is an inference.
    Ready,
    /// The sequence's id.
    CorrelationId,
}

fn idle_ms() -> NonZeroU64 {
    IDLE_MS
}

impl ControlKind {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Ready => "ready",
            Self::CorrelationId => "correlation_id",
        }
    }

    /// Element types of inputs that can hold the value.
    #[must_use]
    pub const fn dtypes(self) -> &'static [DType] {
        match self {
            Self::Start | Self::End | Self::Ready => &[DType::F32, DType::I32, DType::Bool],
            Self::CorrelationId => &[DType::U64, DType::I64, DType::U32, DType::I32, DType::Str],
        }
    }
}

impl Sequences {
    /// Checks that a model with these inputs and outputs supports these settings.
    ///
    /// # Errors
    /// [`DeployError::Sequences`] for unknown inputs or outputs, for states whose input and output differ in type,
    /// for controls of other types, and for an input that is named twice.
    pub fn check(
        &self,
        model: &str,
        inputs: &[ValueSpec],
        outputs: &[ValueSpec],
    ) -> Result<(), DeployError> {
        let checked = self.check_states(inputs, outputs).and_then(|()| self.check_controls(inputs));
        checked
            .and_then(|()| self.check_once())
            .map_err(|reason| DeployError::Sequences { model: model.to_owned(), reason })
    }

    fn check_states(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Result<(), String> {
        for state in &self.states {
            let (input, output) =
                (find("input", inputs, &state.input)?, find("output", outputs, &state.output)?);
            let shape = shape(input)?;
            let fits = match &output.ty.shape {
                None => true,
                Some(other) => may_be_the_same(shape, other),
            };
            if input.ty.dtype != output.ty.dtype || !fits {
                return Err(format!(
                    "the state's input '{}' is {}, but its output '{}' is {}, expected the same",
                    input.name, input.ty, output.name, output.ty
                ));
            }
        }
        Ok(())
    }

    fn check_controls(&self, inputs: &[ValueSpec]) -> Result<(), String> {
        for control in &self.controls {
            let input = find("input", inputs, &control.input)?;
            shape(input)?;
            let (kind, known) = (control.kind, control.kind.dtypes());
            if !known.contains(&input.ty.dtype) {
                let known: Vec<String> = known.iter().map(DType::to_string).collect();
                return Err(format!(
                    "input '{}' is {}, expected one of {} to be told {}",
                    input.name,
                    input.ty,
                    known.join(", "),
                    kind.name()
                ));
            }
        }
        Ok(())
    }

    fn check_once(&self) -> Result<(), String> {
        let states = self.states.iter().map(|state| &state.input);
        let mut inputs: Vec<&String> =
            states.chain(self.controls.iter().map(|control| &control.input)).collect();
        inputs.sort_unstable();
        let twice = inputs.windows(2).find(|pair| pair.first() == pair.last());
        match twice.and_then(<[_]>::first) {
            Some(name) => Err(format!("input '{name}' is named twice, expected once")),
            None => Ok(()),
        }
    }
}

fn find<'a>(what: &str, specs: &'a [ValueSpec], name: &str) -> Result<&'a ValueSpec, String> {
    let found = specs.iter().find(|spec| spec.name == name);
    let found = found.ok_or_else(|| {
        let known: Vec<String> = specs.iter().map(|spec| format!("'{}'", spec.name)).collect();
        format!("it has no {what} '{name}', expected one of {}", known.join(", "))
    })?;
    match found.kind {
        ValueKind::Tensor => Ok(found),
        _ => Err(format!("its {what} '{name}' is no tensor")),
    }
}

fn shape(input: &ValueSpec) -> Result<&SymShape, String> {
    let name = &input.name;
    let shape = input.ty.shape.as_ref();
    shape
        .ok_or_else(|| format!("input '{name}' has no shape, expected one, to know how many zeros"))
}

fn may_be_the_same(one: &SymShape, other: &SymShape) -> bool {
    let differs = |(a, b): (&Dim, &Dim)| match (a.known(), b.known()) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    };
    one.rank() == other.rank() && !one.0.iter().zip(&other.0).any(differs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_memory::TensorType;

    fn spec(name: &str, dtype: DType, dims: &[Dim]) -> ValueSpec {
        let shape = Some(SymShape(dims.to_vec()));
        ValueSpec::tensor(name, TensorType { dtype, shape })
    }

    #[test]
    fn what_a_model_cannot_do_is_refused_with_the_reason() {
        let open = || Dim::Symbol("n".into());
        let inputs = [
            spec("x", DType::F32, &[open(), Dim::Known(2)]),
            spec("s", DType::F32, &[open(), Dim::Known(2)]),
            spec("start", DType::Bool, &[Dim::Known(1)]),
            spec("id", DType::U64, &[Dim::Known(1)]),
            ValueSpec::tensor("any", TensorType { dtype: DType::F32, shape: None }),
        ];
        let outputs = [
            spec("y", DType::F32, &[Dim::Unknown, Dim::Known(2)]),
            spec("wide", DType::F32, &[open(), Dim::Known(3)]),
            spec("whole", DType::I32, &[open(), Dim::Known(2)]),
        ];
        let wish = |states: &[(&str, &str)], controls: &[(&str, ControlKind)]| Sequences {
            idle_ms: IDLE_MS,
            states: states
                .iter()
                .map(|&(input, output)| SequenceState {
                    input: input.to_owned(),
                    output: output.to_owned(),
                })
                .collect(),
            controls: controls
                .iter()
                .map(|&(input, kind)| SequenceControl { input: input.to_owned(), kind })
                .collect(),
        };
        use ControlKind::{CorrelationId, End, Ready, Start};
        let good = wish(&[("s", "y")], &[("start", Start), ("id", CorrelationId)]);
        good.check("m", &inputs, &outputs).expect("it fits");
        for (wish, part) in [
            (wish(&[("t", "y")], &[]), "no input 't', expected one of 'x', 's'"),
            (wish(&[("s", "z")], &[]), "no output 'z'"),
            (wish(&[("s", "wide")], &[]), "output 'wide'"),
            (wish(&[("s", "whole")], &[]), "output 'whole'"),
            (wish(&[("any", "y")], &[]), "input 'any' has no shape"),
            (wish(&[], &[("none", Ready)]), "no input 'none'"),
            (wish(&[], &[("id", End)]), "to be told end"),
            (wish(&[], &[("s", CorrelationId)]), "to be told correlation_id"),
            (wish(&[("s", "y"), ("s", "y")], &[]), "'s' is named twice"),
            (wish(&[("s", "y")], &[("s", Start)]), "'s' is named twice"),
        ] {
            let error = wish.check("m", &inputs, &outputs).expect_err(part).to_string();
            assert!(error.contains(part) && error.contains("'m'"), "{error}");
        }
    }
}
