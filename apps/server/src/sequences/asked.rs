//! The sequence parameters of a request.
#![deny(clippy::as_conversions)]

use crate::fault::Fault;
use crate::oip::{Parameters, flag};
use serde_json::Value;
use std::fmt;

/// Longest textual id, in bytes.
const ID_BYTES_MAX: usize = 256;

/// The id of a sequence. A number and the same digits as text are different ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SequenceId {
    Number(u64),
    Text(String),
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

/// The sequence of an inference, and its position in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: SequenceId,
    /// Whether the inference starts the sequence.
    pub(crate) starts: bool,
    /// Whether the inference ends the sequence.
    pub(crate) ends: bool,
}

impl Asked {
    /// Parses a request's parameters; 0 and empty text mean no sequence.
    pub(crate) fn of(parameters: &Parameters) -> Result<Option<Self>, Fault> {
        let id = id(parameters)?;
        let starts = flag(parameters, "sequence_start")?.unwrap_or(false);
        let ends = flag(parameters, "sequence_end")?.unwrap_or(false);
        match id {
            Some(id) => Ok(Some(Self { id, starts, ends })),
            None if starts || ends => {
                let which = if starts { "sequence_start" } else { "sequence_end" };
                let what = format!("parameter {which} is true without sequence_id");
                Err(Fault::bad_input(what + ", expected the id of a sequence"))
            }
            None => Ok(None),
        }
    }
}

fn id(parameters: &Parameters) -> Result<Option<SequenceId>, Fault> {
    match parameters.get("sequence_id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() > ID_BYTES_MAX => Err(Fault::bad_input(format!(
            "parameter sequence_id has {} bytes, expected at most {ID_BYTES_MAX}",
            text.len()
        ))),
        Some(Value::String(text)) => Ok(Some(SequenceId::Text(text.clone()))),
        Some(value) => match value.as_u64() {
            Some(0) => Ok(None),
            Some(number) => Ok(Some(SequenceId::Number(number))),
            None => {
                let what = format!("parameter sequence_id is {value}");
                Err(Fault::bad_input(what + ", expected an integer from 0 or a text"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(parameters: &Value) -> Result<Option<Asked>, Fault> {
        Asked::of(parameters.as_object().expect("parameters"))
    }

    #[test]
    fn ids_are_numbers_or_texts() {
        let asked = |id, starts, ends| Some(Asked { id, starts, ends });
        let text = |text: &str| SequenceId::Text(text.to_owned());
        for (given, expected) in [
            (json!({}), None),
            (json!({"sequence_id": 0, "sequence_start": false}), None),
            (json!({"sequence_id": "", "sequence_end": null}), None),
            (json!({"sequence_id": 7}), asked(SequenceId::Number(7), false, false)),
            (json!({"sequence_id": "7", "sequence_end": true}), asked(text("7"), false, true)),
            (
                json!({"sequence_id": u64::MAX, "sequence_start": true}),
                asked(SequenceId::Number(u64::MAX), true, false),
            ),
        ] {
            assert_eq!(of(&given), Ok(expected), "{given}");
        }
        let long = "a".repeat(ID_BYTES_MAX + 1);
        for (given, part) in [
            (json!({"sequence_id": -1}), "sequence_id is -1"),
            (json!({"sequence_id": 1.5}), "sequence_id is 1.5"),
            (json!({"sequence_id": true}), "sequence_id is true"),
            (json!({"sequence_id": [1]}), "sequence_id is [1]"),
            (json!({"sequence_id": long}), "257 bytes"),
            (json!({"sequence_id": 1, "sequence_start": 1}), "sequence_start is 1"),
            (json!({"sequence_id": 1, "sequence_end": "yes"}), "sequence_end is \"yes\""),
            (json!({"sequence_start": true}), "sequence_start is true without sequence_id"),
            (json!({"sequence_id": 0, "sequence_end": true}), "sequence_end is true without"),
        ] {
            let fault = of(&given).expect_err(part);
            assert!(fault.status == 400 && fault.message.contains(part), "{}", fault.message);
        }
    }
}
