//! The optional parameters of requests, inputs and outputs.
#![deny(clippy::as_conversions)]

use crate::fault::Fault;
use serde_json::{Map, Value};

/// Optional parameters of a request, an input or an output.
pub(crate) type Parameters = Map<String, Value>;

/// A parameter that is an integer from 0.
pub(crate) fn number(parameters: &Parameters, key: &str) -> Result<Option<u64>, Fault> {
    match parameters.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            Fault::bad_input(format!("parameter {key} is {value}, expected an integer from 0"))
        }),
    }
}

/// A parameter that is true or false.
pub(crate) fn flag(parameters: &Parameters, key: &str) -> Result<Option<bool>, Fault> {
    match parameters.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_bool().map(Some).ok_or_else(|| {
            Fault::bad_input(format!("parameter {key} is {value}, expected true or false"))
        }),
    }
}
