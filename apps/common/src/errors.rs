//! How applications report errors: a stable code, and all causes on one line.

use lgp_inference::Error as ModelError;
use std::io::ErrorKind;

/// A stable identifier, in snake case, of an error of a model or its inputs.
#[must_use]
pub fn model_error_code(error: &ModelError) -> &'static str {
    match error {
        ModelError::Io { source, .. } if source.kind() == ErrorKind::NotFound => "file_not_found",
        ModelError::Io { .. } => "io",
        ModelError::Malformed { .. }
        | ModelError::Graph { .. }
        | ModelError::Cycle { .. }
        | ModelError::Tensor { .. }
        | ModelError::Node { .. } => "model_invalid",
        ModelError::Weights { .. } | ModelError::WeightsGlobal { .. } => "weights_invalid",
        ModelError::ExternalData { .. } => "model_external_data",
        ModelError::IrVersion { .. } | ModelError::Opset { .. } | ModelError::Unsupported(_) => {
            "model_unsupported"
        }
        ModelError::UnknownInput { .. }
        | ModelError::MissingInput { .. }
        | ModelError::DuplicateInput { .. } => "input_name",
        ModelError::InputDType { .. } => "input_dtype",
        ModelError::InputShape { .. } => "input_shape",
        ModelError::DeviceTooSmall { .. } | ModelError::NoCut { .. } => "device_memory",
        ModelError::ModelName { .. } => "model_name",
        ModelError::UnknownModel { .. } | ModelError::UnknownVersion { .. } => "model_unknown",
        _ => "model_failed",
    }
}

/// An error and its causes on one line, without repeating a cause that the outer message quotes.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Rewords a message of a settings or request parser, without Rust's type names.
///
/// ```
/// let said = "invalid type: string \"a\", expected u32";
/// assert!(lgp_common::plainly(said).ends_with("expected a whole number from 0 to 4294967295"));
/// ```
#[must_use]
pub fn plainly(said: &str) -> String {
    const WORDS: [(&str, &str); 9] = [
        ("usize", "a whole number from 0"),
        ("u64", "a whole number from 0"),
        ("u32", "a whole number from 0 to 4294967295"),
        ("u16", "a whole number from 0 to 65535"),
        ("u8", "a whole number from 0 to 255"),
        ("i64", "a whole number"),
        ("an integer", "a whole number"),
        ("f64", "a number"),
        ("f32", "a number"),
    ];
    WORDS.into_iter().fold(said.to_owned(), |said, (type_, words)| {
        said.replace(&format!("expected {type_}"), &format!("expected {words}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot load")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("disk is full"));
        assert_eq!(chain(&error), "cannot load: disk is full");
        let path = std::path::PathBuf::from("m.onnx");
        let source = std::io::Error::from(ErrorKind::NotFound);
        assert_eq!(
            model_error_code(&ModelError::Io { action: "read", path, source }),
            "file_not_found"
        );
    }
}
