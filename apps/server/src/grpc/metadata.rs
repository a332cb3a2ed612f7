//! Messages about the server, its models and their statistics.

use super::proto::model_metadata_response::TensorMetadata;
use super::proto::{
    InferBatchStatistics, InferStatistics, ModelMetadataResponse, ModelStatistics,
    ServerMetadataResponse, StatisticDuration,
};
use crate::catalog::ModelEntry;
use crate::metrics::{BatchReading, ModelReading};
use crate::oip;
use lgp_sdk::model::ValueSpec;

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
    let of = |count: u64, ns: u64| Some(StatisticDuration { count, ns });
    let batch = |(rows, batch): &(u64, BatchReading)| InferBatchStatistics {
        batch_size: *rows,
        compute_input: of(batch.runs, batch.compute_input_ns),
        compute_infer: of(batch.runs, batch.compute_infer_ns),
        compute_output: of(batch.runs, batch.compute_output_ns),
    };
    let (success, computed) = (reading.success, reading.computed);
    ModelStatistics {
        name: entry.name().to_owned(),
        version: entry.version().to_string(),
        last_inference: reading.last_inference_ms,
        inference_count: reading.inferences,
        execution_count: reading.executions,
        inference_stats: Some(InferStatistics {
            success: of(success, reading.request_ns),
            fail: of(reading.failure.iter().sum(), reading.failure_ns),
            queue: of(success, reading.queue_ns),
            compute_input: of(computed, reading.compute_input_ns),
            compute_infer: of(computed, reading.compute_infer_ns),
            compute_output: of(computed, reading.compute_output_ns),
            cache_hit: of(reading.cache_hits, reading.cache_hit_ns),
            cache_miss: of(reading.cache_misses, reading.cache_miss_ns),
        }),
        batch_stats: reading.batches.iter().map(batch).collect(),
        ..ModelStatistics::default()
    }
}
