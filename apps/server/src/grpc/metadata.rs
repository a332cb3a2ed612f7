//! The server, its models and what they have done, as messages.

use super::proto::model_metadata_response::TensorMetadata;
use super::proto::{
    InferStatistics, ModelMetadataResponse, ModelStatistics, ServerMetadataResponse,
    StatisticDuration,
};
use crate::catalog::ModelEntry;
use crate::metrics::ModelReading;
use crate::oip;
use lgp_sdk::ValueSpec;

pub(super) fn server() -> ServerMetadataResponse {
    ServerMetadataResponse {
        name: oip::NAME.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: oip::EXTENSIONS.map(str::to_owned).to_vec(),
    }
}

pub(super) fn model(entry: &ModelEntry, versions: &[u64]) -> ModelMetadataResponse {
    ModelMetadataResponse {
        name: entry.name().to_owned(),
        versions: versions.iter().map(u64::to_string).collect(),
        platform: oip::platform(entry).to_owned(),
        inputs: tensors(entry.inputs()),
        outputs: tensors(entry.outputs()),
    }
}

fn tensors(specs: &[ValueSpec]) -> Vec<TensorMetadata> {
    let tensor = |spec: &ValueSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: oip::datatype_name(spec.ty.dtype).to_owned(),
        shape: oip::wire_dims(spec.ty.shape.as_ref()),
    };
    specs.iter().map(tensor).collect()
}

pub(super) fn statistics(entry: &ModelEntry, reading: &ModelReading) -> ModelStatistics {
    let ok = |ns: u64| Some(StatisticDuration { count: reading.success, ns });
    let failed = StatisticDuration { count: reading.failure.iter().sum(), ns: reading.failure_ns };
    ModelStatistics {
        name: entry.name().to_owned(),
        version: entry.version().to_string(),
        last_inference: reading.last_inference_ms,
        inference_count: reading.success,
        execution_count: reading.executions,
        inference_stats: Some(InferStatistics {
            success: ok(reading.request_ns),
            fail: Some(failed),
            queue: ok(reading.queue_ns),
            compute_input: ok(reading.compute_input_ns),
            compute_infer: ok(reading.compute_infer_ns),
            compute_output: ok(reading.compute_output_ns),
            ..InferStatistics::default()
        }),
        ..ModelStatistics::default()
    }
}
