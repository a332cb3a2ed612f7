//! Traces of requests, for a collector that speaks OTLP over HTTP.
//!
//! Nothing waits for the collector: spans that do not fit in the queue are dropped and counted. Without a
//! collector, requests still have a trace id, their own or their client's, which the log shows.

mod client;
mod queue;
mod steps;

use crate::config::ServerConfig;
use lgp_sdk::cluster::ModelRef;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use queue::Counts;
pub(crate) use steps::{Ran, Steps};

/// How long a shutdown waits for unsent spans.
const FINISH: Duration = Duration::from_secs(1);
/// The interval after which another run of a model is traced with its nodes.
const NODES_EVERY: Duration = Duration::from_secs(1);
/// The most models whose last traced run is remembered.
const MODELS_MAX: usize = 1_024;

/// Makes spans, and sends them if a collector is set.
#[derive(Debug)]
pub(crate) struct Tracing {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    counts: Option<Arc<Counts>>,
    /// Whether the nodes of runs are traced at all.
    nodes: bool,
    /// When each model's nodes were last traced.
    told: Mutex<BTreeMap<ModelRef, Instant>>,
}

impl Tracing {
    /// Follows the settings. If the collector cannot be set up, the server logs an error and runs without traces.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let Some(endpoint) = &config.otlp_endpoint else { return Self::off() };
        Self::to(endpoint, (config.otlp_ratio, config.otlp_nodes)).unwrap_or_else(|error| {
            tracing::error!(endpoint, %error, "traces are not sent");
            Self::off()
        })
    }

    /// Sends nothing. Only traces that requests bring can be sampled.
    fn off() -> Self {
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
        Self::with(SdkTracerProvider::builder().with_sampler(sampler).build(), None)
    }

    /// Sends a share of all traces, and the sampled ones that requests bring.
    fn to(endpoint: &str, (ratio, nodes): (f64, bool)) -> Result<Self, ExporterBuildError> {
        let rejected = Arc::new(AtomicU64::new(0));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client::Client::new(Arc::clone(&rejected)))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()?;
        let (processor, counts) = queue::bounded(exporter, rejected);
        let root = Sampler::TraceIdRatioBased(ratio);
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource =
            Resource::builder_empty().with_service_name("radeon-cluster").with_attribute(version);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(root)))
            .with_resource(resource.build())
            .with_span_processor(processor)
            .build();
        let mut tracing = Self::with(provider, Some(counts));
        tracing.nodes = nodes;
        Ok(tracing)
    }

    fn with(provider: SdkTracerProvider, counts: Option<Arc<Counts>>) -> Self {
        let (tracer, nodes) = (provider.tracer("lgp-server"), false);
        Self { tracer, provider, counts, nodes, told: Mutex::default() }
    }

    pub(crate) fn tracer(&self) -> &SdkTracer {
        &self.tracer
    }

    /// Whether to trace the nodes of a model's run that begins now: of one run a second, because on a device
    /// tracing may cost more than the run, and of none while the span queue is at least half full.
    pub(crate) fn tells_nodes(&self, model: &ModelRef, now: Instant) -> bool {
        if !self.nodes || self.counts.as_ref().is_none_or(|counts| counts.is_half_full()) {
            return false;
        }
        let mut told = lock(&self.told);
        if told.get(model).is_some_and(|last| now.saturating_duration_since(*last) < NODES_EVERY) {
            return false;
        }
        if told.len() >= MODELS_MAX {
            told.clear();
        }
        told.insert(model.clone(), now);
        true
    }

    /// Counts of sent and dropped spans, if spans are sent.
    pub(crate) fn counts(&self) -> Option<&Counts> {
        self.counts.as_deref()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // Spans that are unsent by then are lost, possibly because the collector is slow.
        let _ = self.provider.shutdown_with_timeout(FINISH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_nodes_of_one_run_a_second_of_each_model_are_told() {
        let with = |nodes| {
            // Nothing listens at this address, and no span is sent.
            let otlp_endpoint = Some("http://127.0.0.1:9".to_owned());
            Tracing::new(&ServerConfig { otlp_endpoint, otlp_nodes: nodes, ..Default::default() })
        };
        let model = |number: usize| {
            let name = format!("m{number}");
            ModelRef { name, version: 1, sha256: String::new() }
        };
        let (tracing, began) = (with(true), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        let told = [0, 999, 1_000, 1_500, 2_000].map(|ms| tracing.tells_nodes(&model(0), at(ms)));
        assert_eq!(told, [true, false, true, false, true]);
        assert!(tracing.tells_nodes(&model(1), at(2_001)), "each has its own");
        assert!((2..2 * MODELS_MAX).all(|number| tracing.tells_nodes(&model(number), at(2_002))));
        assert!(lock(&tracing.told).len() <= MODELS_MAX);
        assert!(!with(false).tells_nodes(&model(0), began));
        assert!(!Tracing::off().tells_nodes(&model(0), began));
    }
}
