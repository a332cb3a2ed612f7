//! Traces of requests, for a collector that speaks OTLP over HTTP.
//!
//! Nothing waits for the collector: spans that find no room in the queue are dropped and counted. Without
//! a collector requests still have a trace of their own or their client's, which the log names.

mod client;
mod queue;
mod steps;

use crate::config::ServerConfig;
use lgp_sdk::ModelRef;
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

/// How long the end of the server waits for spans that are still to be sent.
const FINISH: Duration = Duration::from_secs(1);
/// After which the nodes of another run of a model are told.
const NODES_EVERY: Duration = Duration::from_secs(1);
/// Models whose last told run is remembered.
const MODELS_MAX: usize = 1_024;

/// Makes spans, and sends them where that is wanted.
#[derive(Debug)]
pub(crate) struct Tracing {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    counts: Option<Arc<Counts>>,
    /// Whether nodes of runs are told at all.
    nodes: bool,
    /// When the nodes of each model's run were told last.
    told: Mutex<BTreeMap<ModelRef, Instant>>,
}

impl Tracing {
    /// As the settings want it. A collector that cannot be set up is a line of the log: without one the
    /// server does all else.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let Some(endpoint) = &config.otlp_endpoint else { return Self::off() };
        Self::to(endpoint, (config.otlp_ratio, config.otlp_nodes)).unwrap_or_else(|error| {
            tracing::error!(endpoint, %error, "traces are not sent");
            Self::off()
        })
    }

    /// Sends nothing: no request that did not come with a trace is part of one that is kept.
    fn off() -> Self {
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
        Self::with(SdkTracerProvider::builder().with_sampler(sampler).build(), None)
    }

    /// Sends a share of all traces, and those that came with their requests and are kept.
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

    /// Whether the nodes of a model's next run are told, if that begins now: of one a second, for to be told
    /// costs a run on a device more than the run itself may, and of none while spans have little room.
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

    /// What became of spans, where they are sent.
    pub(crate) fn counts(&self) -> Option<&Counts> {
        self.counts.as_deref()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // What is not sent by then is lost, which the collector may be to blame for.
        let _ = self.provider.shutdown_with_timeout(FINISH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_nodes_of_one_run_a_second_of_each_model_are_told() {
        let with = |nodes| {
            // Nobody listens there, and nothing is sent.
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
