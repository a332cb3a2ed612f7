//! Unsupported parts of a configuration: ignored if answers are the same without them, else refused.

use super::proto::model_config::SchedulingChoice;
use super::proto::{ModelConfig, ModelInput, ModelOutput};

/// Fields that have no effect.
pub(super) const IGNORED: [&str; 6] =
    ["instance_group", "metric_tags", "model_metrics", "optimization", "parameters", "runtime"];

/// The model's file in the folder of a version.
const MODEL_FILE: &str = "model.onnx";

/// Refuses fields that would change answers but have no effect here.
pub(super) fn check(model: &str, config: &ModelConfig) -> Result<(), String> {
    for (field, given, known) in [
        ("name", &config.name, model),
        ("platform", &config.platform, "onnxruntime_onnx"),
        ("backend", &config.backend, "onnxruntime"),
        ("default_model_filename", &config.default_model_filename, MODEL_FILE),
    ] {
        // The platform in this server's own configurations.
        let is_own = field == "platform" && given == "lgp_onnx";
        if !given.is_empty() && given != known && !is_own {
            return Err(format!("{field} is '{given}', expected '{known}'"));
        }
    }
    if let Some((chip, file)) = config.cc_model_filenames.iter().find(|(_, f)| *f != MODEL_FILE) {
        let what = format!("cc_model_filenames has '{file}' for {chip}");
        return Err(format!("{what}, expected '{MODEL_FILE}' for all"));
    }
    let is_ensemble =
        matches!(config.scheduling_choice, Some(SchedulingChoice::EnsembleScheduling(_)));
    for (field, is_set, hint) in [
        ("ensemble_scheduling", is_ensemble, "an ensemble is a file ensemble.toml here"),
        (
            "model_transaction_policy.decoupled",
            config.model_transaction_policy.is_some_and(|policy| policy.decoupled),
            "each request has one answer here",
        ),
        (
            "batch_input",
            !config.batch_input.is_empty(),
            "batches bring no inputs of their own here",
        ),
        ("batch_output", !config.batch_output.is_empty(), "batches are split by rows here"),
        (
            "model_operations",
            config.model_operations.as_ref().is_some_and(|o| !o.op_library_filename.is_empty()),
            "no libraries are loaded here",
        ),
        (
            "model_repository_agents",
            config.model_repository_agents.as_ref().is_some_and(|it| !it.agents.is_empty()),
            "nothing is done to models' files here",
        ),
    ] {
        if is_set {
            return Err(format!("{field} is not supported: {hint}"));
        }
    }
    let is_stateful =
        matches!(config.scheduling_choice, Some(SchedulingChoice::SequenceBatching(_)));
    if is_stateful && config.response_cache.is_some_and(|cache| cache.enable) {
        let what = "response_cache and sequence_batching are both set, expected one of them";
        return Err(format!("{what}: an answer within a sequence depends on those before it"));
    }
    config.input.iter().try_for_each(input)?;
    config.output.iter().try_for_each(output)
}

fn input(input: &ModelInput) -> Result<(), String> {
    let parts = [
        ("reshape", input.reshape.is_some()),
        ("is_shape_tensor", input.is_shape_tensor),
        ("allow_ragged_batch", input.allow_ragged_batch),
        ("is_non_linear_format_io", input.is_non_linear_format_io),
    ];
    none_of("input", &input.name, &parts)
}

fn output(output: &ModelOutput) -> Result<(), String> {
    let parts = [
        ("reshape", output.reshape.is_some()),
        ("is_shape_tensor", output.is_shape_tensor),
        ("is_non_linear_format_io", output.is_non_linear_format_io),
    ];
    none_of("output", &output.name, &parts)
}

fn none_of(side: &str, name: &str, parts: &[(&str, bool)]) -> Result<(), String> {
    match parts.iter().find(|(_, is_set)| *is_set) {
        Some((part, _)) => Err(format!(
            "{side} '{name}': {part} is not supported, expected the model's own shape and layout"
        )),
        None => Ok(()),
    }
}
