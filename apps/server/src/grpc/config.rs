//! A model's configuration in Triton's form.

use super::proto::model_config::SchedulingChoice;
use super::proto::model_sequence_batching::control::Kind;
use super::proto::model_sequence_batching::{Control, ControlInput, State};
use super::proto::model_version_policy::{All, Latest, PolicyChoice, Specific};
use super::proto::model_warmup::Input;
use super::proto::model_warmup::input::InputDataType;
use super::proto::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelOutput, ModelResponseCache,
    ModelSequenceBatching, ModelVersionPolicy, ModelWarmup,
};
use crate::catalog::ModelEntry;
use crate::deployment::{ControlKind, Deployment};
use crate::oip::{self, Settings, WarmUpInput, WarmUpRun};
use crate::sequences::Stateful;
use crate::versions::VersionPolicy;
use lgp_distributed::Batching;
use lgp_sdk::tensor::DType;

/// A model's configuration with its current settings. If `max_batch_size` is 0, the shapes include the batch.
pub(super) fn config(
    entry: &ModelEntry,
    policy: VersionPolicy,
    deployment: &Deployment,
) -> ModelConfig {
    let settings = Settings::of(entry, deployment);
    let input = |spec: &lgp_sdk::model::ValueSpec| ModelInput {
        name: spec.name.clone(),
        data_type: data_type(spec.ty.dtype).into(),
        dims: settings.dims(spec),
        ..ModelInput::default()
    };
    let output = |spec: &lgp_sdk::model::ValueSpec| ModelOutput {
        name: spec.name.clone(),
        data_type: data_type(spec.ty.dtype).into(),
        dims: settings.dims(spec),
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
        max_batch_size: i32::try_from(settings.max_batch_size).unwrap_or(i32::MAX),
        scheduling_choice: (entry.stateful().map(sequences))
            .or_else(|| settings.batching.as_ref().map(batching)),
        model_warmup: settings.warm_up.iter().map(warm_up).collect(),
        response_cache: settings.is_cached.then_some(ModelResponseCache { enable: true }),
        ..ModelConfig::default()
    }
}

fn batching(batching: &Batching) -> SchedulingChoice {
    let size = |size: &std::num::NonZeroU32| i32::try_from(size.get()).unwrap_or(i32::MAX);
    SchedulingChoice::DynamicBatching(ModelDynamicBatching {
        preferred_batch_size: batching.preferred.iter().map(size).collect(),
        max_queue_delay_microseconds: batching.delay_us,
        ..ModelDynamicBatching::default()
    })
}

fn warm_up(run: &WarmUpRun) -> ModelWarmup {
    let input = |WarmUpInput { name, dtype, dims }: &WarmUpInput| {
        let (data_type, dims) = (data_type(*dtype).into(), dims.clone());
        let input_data_type = Some(InputDataType::ZeroData(true));
        (name.clone(), Input { data_type, dims, input_data_type })
    };
    let inputs = run.inputs.iter().map(input).collect();
    ModelWarmup { batch_size: run.batch_size, inputs, count: 1, ..ModelWarmup::default() }
}

/// A model's settings of sequences.
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
    let state = |(spec, output): (&lgp_sdk::model::ValueSpec, &str)| State {
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
