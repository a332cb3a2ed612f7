//! A model's configuration as Triton writes it.

use super::proto::model_config::SchedulingChoice;
use super::proto::model_sequence_batching::control::Kind;
use super::proto::model_sequence_batching::{Control, ControlInput, State};
use super::proto::model_version_policy::{All, Latest, PolicyChoice, Specific};
use super::proto::{
    DataType, ModelConfig, ModelInput, ModelOutput, ModelSequenceBatching, ModelVersionPolicy,
};
use crate::catalog::ModelEntry;
use crate::oip;
use crate::sequences::Stateful;
use lgp_sdk::{ControlKind, DType, VersionPolicy};

/// The configuration of a model. Batches are part of the shapes, hence `max_batch_size` 0.
pub(super) fn config(entry: &ModelEntry, policy: VersionPolicy) -> ModelConfig {
    let input = |spec: &lgp_sdk::ValueSpec| ModelInput {
        name: spec.name.clone(),
        data_type: data_type(spec.ty.dtype).into(),
        dims: oip::wire_dims(spec.ty.shape.as_ref()),
        ..ModelInput::default()
    };
    let output = |spec: &lgp_sdk::ValueSpec| ModelOutput {
        name: spec.name.clone(),
        data_type: data_type(spec.ty.dtype).into(),
        dims: oip::wire_dims(spec.ty.shape.as_ref()),
        ..ModelOutput::default()
    };
    ModelConfig {
        name: entry.name().to_owned(),
        platform: oip::platform(entry).to_owned(),
        version_policy: Some(ModelVersionPolicy {
            policy_choice: Some(match policy {
                VersionPolicy::All => PolicyChoice::All(All {}),
                VersionPolicy::Latest(count) => {
                    PolicyChoice::Latest(Latest { num_versions: count.get() })
                }
                VersionPolicy::Listed(versions) => PolicyChoice::Specific(Specific {
                    versions: versions
                        .into_iter()
                        .map(|version| i64::try_from(version).unwrap_or(i64::MAX))
                        .collect(),
                }),
            }),
        }),
        input: entry.inputs().iter().map(input).collect(),
        output: entry.outputs().iter().map(output).collect(),
        scheduling_choice: entry.stateful().map(sequences),
        ..ModelConfig::default()
    }
}

/// What a model does with sequences.
fn sequences(stateful: &Stateful) -> SchedulingChoice {
    let control = |(name, kind, dtype): (&str, ControlKind, DType)| {
        let named = Kind::from_str_name(oip::control_name(kind)).unwrap_or_default();
        let mut control = Control { kind: named.into(), ..Control::default() };
        match (kind, dtype) {
            (ControlKind::CorrelationId, dtype) => control.data_type = data_type(dtype).into(),
            (_, DType::F32) => control.fp32_false_true = vec![0.0, 1.0],
            (_, DType::Bool) => control.bool_false_true = vec![false, true],
            _ => control.int32_false_true = vec![0, 1],
        }
        ControlInput { name: name.to_owned(), control: vec![control] }
    };
    let state = |(spec, output): (&lgp_sdk::ValueSpec, &str)| State {
        input_name: spec.name.clone(),
        output_name: output.to_owned(),
        data_type: data_type(spec.ty.dtype).into(),
        dims: oip::wire_dims(spec.ty.shape.as_ref()),
        ..State::default()
    };
    SchedulingChoice::SequenceBatching(ModelSequenceBatching {
        max_sequence_idle_microseconds: stateful.idle_us(),
        control_input: stateful.controls().map(control).collect(),
        state: stateful.states().map(state).collect(),
        ..ModelSequenceBatching::default()
    })
}

fn data_type(dtype: DType) -> DataType {
    DataType::from_str_name(&oip::config_datatype(dtype)).unwrap_or(DataType::TypeInvalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_of_the_protocol_has_its_number() {
        use DType::{BF16, Bool, F16, F32, I64, Str, U8};
        for dtype in [Bool, I64, F16, BF16, F32, U8, Str] {
            assert_ne!(data_type(dtype), DataType::TypeInvalid, "{dtype}");
        }
    }
}
