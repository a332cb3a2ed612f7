//! Errors as exceptions of the package's own classes, which Python code defines.

use lgp_common::{chain, model_error_code};
use lgp_inference::Stopped;
use lgp_sdk::device::Error as ChoiceError;
use lgp_sdk::model::Error as ModelError;
use pyo3::prelude::*;
use std::borrow::Cow;

/// An error, for users and for programs.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Cow<'static, str>,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: None }
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A defect of the package, with the message of a thread's panic.
    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new("internal", format!("internal error: {}", text.unwrap_or("a panic")))
            .hint("this is a defect of legacy_gpu; please report it with this line")
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Stopped(Stopped::Cancelled) => Self::new("cancelled", chain(&error)),
            _ => Self::new(model_error_code(&error), chain(&error)),
        }
    }
}

impl From<ChoiceError> for Failure {
    fn from(error: ChoiceError) -> Self {
        Self::new(error.code(), chain(&error)).hint(error.hint("device="))
    }
}

impl From<lgp_sdk::tensor::Error> for Failure {
    fn from(error: lgp_sdk::tensor::Error) -> Self {
        Self::new("input_invalid", chain(&error))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let Failure { code, message, hint } = failure;
        Python::attach(|py| {
            let made = py
                .import("legacy_gpu._errors")
                .and_then(|module| module.call_method1("of_code", (code, message, hint)));
            made.map_or_else(|error| error, Self::from_value)
        })
    }
}
