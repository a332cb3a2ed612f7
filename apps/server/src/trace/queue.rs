//! The bounded queue of unsent spans, with counts of sent and dropped spans.

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The most spans that wait or are being sent.
const WAITING_MAX: usize = 2_048;
/// The most spans in one message.
const BATCH_MAX: usize = 512;
/// How long a span waits for others before it is sent.
const DELAY: Duration = Duration::from_millis(500);

/// Counts of sent and dropped spans.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    waiting: AtomicUsize,
    sent: AtomicU64,
    crowded_out: AtomicU64,
    refused: AtomicU64,
    /// Whether the last message failed.
    failing: AtomicBool,
}

impl Counts {
    /// Spans that the collector accepted.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Dropped spans, by reason.
    pub(crate) fn dropped(&self) -> [(&'static str, u64); 2] {
        [("queue_full", self.crowded_out.load(Relaxed)), ("not_taken", self.refused.load(Relaxed))]
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.waiting.load(Relaxed) >= WAITING_MAX / 2
    }

    /// Takes room for one more span; returns whether there was any.
    fn enter(&self) -> bool {
        let more = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        let entered = self.waiting.fetch_update(Relaxed, Relaxed, more).is_ok();
        if !entered {
            self.crowded_out.fetch_add(1, Relaxed);
        }
        entered
    }

    /// Counts spans that left the queue; the collector accepted their message but rejected `rejected` of them.
    fn left(&self, spans: usize, rejected: u64, result: &OTelSdkResult) {
        self.waiting.fetch_sub(spans, Relaxed);
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        let refused = if result.is_ok() { rejected.min(spans) } else { spans };
        self.refused.fetch_add(refused, Relaxed);
        self.sent.fetch_add(spans - refused, Relaxed);
        let was_failing = self.failing.swap(result.is_err(), Relaxed);
        match result {
            Err(error) if !was_failing => {
                tracing::warn!(%error, "the collector of traces does not take them");
            }
            Ok(()) if was_failing => tracing::info!("the collector of traces takes them again"),
            _ => {}
        }
    }
}

/// Sends spans by an exporter, through a bounded queue. The exporter sets `rejected` to the number of spans that
/// the collector rejected from an accepted message.
pub(super) fn bounded(
    exporter: impl SpanExporter + 'static,
    rejected: Arc<AtomicU64>,
) -> (impl SpanProcessor + 'static, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING_MAX)
        .with_max_export_batch_size(BATCH_MAX)
        .with_scheduled_delay(DELAY)
        .build();
    let counted = Counted { exporter, rejected, counts: Arc::clone(&counts) };
    let sender = BatchSpanProcessor::builder(counted).with_batch_config(config).build();
    (Bounded { sender, counts: Arc::clone(&counts) }, counts)
}

/// Admits spans to the queue.
#[derive(Debug)]
struct Bounded {
    sender: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.sender.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.counts.enter() {
            self.sender.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.sender.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.sender.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.sender.set_resource(resource);
    }
}

/// Counts spans as they leave the queue.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    rejected: Arc<AtomicU64>,
    counts: Arc<Counts>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.counts.left(spans, self.rejected.swap(0, Relaxed), &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
