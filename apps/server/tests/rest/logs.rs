//! Log lines show the request that they belong to.

use crate::grpc::{client, request as message};
use crate::rig::{Options, Rig};
use lgp_server::ServerConfig;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// An in-memory log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// With several dispatchers, tracing asks that of a line's own thread. A single one would count for all threads,
/// and a line that another thread reaches first would stay disabled.
fn keep_apart() {
    static OTHERS: OnceLock<[Dispatch; 2]> = OnceLock::new();
    OTHERS.get_or_init(|| [(); 2].map(|()| Dispatch::new(Registry::default())));
}

impl Log {
    pub(crate) fn start(level: &str) -> (Self, DefaultGuard) {
        keep_apart();
        let log = Self::default();
        let lines = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .with_env_filter(EnvFilter::new(level))
            .with_writer(move || lines.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Lines with this message.
    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        lines.filter(|line| line["message"] == message).collect()
    }
}

fn body(id: &str) -> String {
    let input = r#"{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1.5,2.5]}"#;
    format!(r#"{{"id":"{id}","inputs":[{input}]}}"#)
}

#[tokio::test]
async fn a_request_ends_with_a_line_that_says_what_it_was() {
    let rig = Rig::start().await;
    let (log, _guard) = Log::start("lgp_server=debug");
    let long = "x".repeat(1_000);
    for (id, shown) in [("a b", "a b"), ("\\n", "\u{fffd}"), (&long, &long[..64])] {
        rig.post("/v2/models/relu/infer", body(id)).await;
        let lines = log.lines("request answered");
        let line = lines.last().expect("a line");
        assert_eq!((&line["level"], &line["status"]), (&"DEBUG".into(), &200.into()), "{line}");
        assert!(line["duration_ms"].as_f64() > Some(0.0), "{line}");
        let span = &line["span"];
        assert_eq!(span["route"], "/v2/models/{model}/infer", "{line}");
        assert_eq!((&span["model"], &span["id"]), (&"relu/1".into(), &shown.into()), "{line}");
        assert!(span["task"].is_string(), "{line}");
        assert_eq!(span["trace"].as_str().map(str::len), Some(32), "{line}");
    }
    rig.get("/nowhere").await;
    let lines = log.lines("request answered");
    assert_eq!(lines.last().map(|line| &line["status"]), Some(&404.into()));
}

#[tokio::test]
async fn a_failure_is_told_with_its_request() {
    let rig = Rig::start().await;
    let (log, _guard) = Log::start("lgp_server=info");
    rig.post("/v2/models/fails/infer", body("7")).await;
    for (message, level) in [("the model failed", "ERROR"), ("request failed", "INFO")] {
        let lines = log.lines(message);
        let [line] = &lines[..] else { panic!("one line with {message}: {lines:?}") };
        assert_eq!(line["level"], level, "{line}");
        let span = &line["span"];
        assert_eq!((&span["model"], &span["id"]), (&"fails/1".into(), &"7".into()), "{line}");
    }
    let cause = &log.lines("the model failed")[0]["cause"];
    assert!(cause.as_str().is_some_and(|cause| cause.contains("secret detail")), "{cause}");
    assert!(log.lines("request answered").is_empty());
}

#[tokio::test]
async fn refusals_have_a_line_a_second_and_failures_one_each() {
    const REFUSED: usize = 50;
    let server = ServerConfig { pending_max: 0, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let (log, _guard) = Log::start("lgp_server=info");
    let mut client = client(&rig, Some(&rig.bearer));
    let began = Instant::now();
    for _ in 0..REFUSED {
        assert_eq!(rig.post("/v2/models/relu/infer", body("7")).await.status, 503);
        client.model_infer(message("relu", [1.0, 2.0])).await.unwrap_err();
    }
    let lines = log.lines("request failed").len();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!((1..=seconds + 1).contains(&lines), "{lines} lines in {seconds} s");
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    rig.post("/v2/models/relu/infer", body("7")).await;
    let lines = log.lines("request failed");
    let untold = lines.iter().filter_map(|line| line["untold"].as_u64()).sum::<u64>();
    assert_eq!(untold + u64::try_from(lines.len()).unwrap(), 2 * REFUSED as u64 + 1);

    let rig = Rig::start().await;
    for _ in 0..3 {
        rig.post("/v2/models/fails/infer", body("7")).await;
    }
    let failed = log.lines("request failed").into_iter().filter(|line| line["status"] == 500);
    assert_eq!(failed.count(), 3);
}

#[tokio::test]
async fn calls_of_grpc_are_told_too() {
    let rig = Rig::start().await;
    let (log, _guard) = Log::start("lgp_server=debug");
    let mut client = client(&rig, Some(&rig.bearer));
    client.model_infer(message("relu", [1.0, 2.0])).await.unwrap();
    client.model_infer(message("fails", [1.0, 2.0])).await.unwrap_err();
    for (message, model, code) in
        [("request answered", "relu/1", None), ("request failed", "fails/1", Some("Internal"))]
    {
        let lines = log.lines(message);
        let [line] = &lines[..] else { panic!("one line with {message}: {lines:?}") };
        let span = &line["span"];
        assert_eq!(span["route"], "/inference.GRPCInferenceService/ModelInfer", "{line}");
        assert_eq!((&span["model"], &span["id"]), (&model.into(), &"7".into()), "{line}");
        assert_eq!(line["grpc"].as_str(), code, "{line}");
    }
}

/// How often each span recorded a model.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<u64, usize>>>);

/// Whether a record has a model.
struct OfModel(bool);

impl Visit for OfModel {
    fn record_debug(&mut self, field: &Field, _: &dyn Debug) {
        self.0 |= field.name() == "model";
    }
}

impl<S: Subscriber> Layer<S> for Told {
    fn on_record(&self, span: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut found = OfModel(false);
        values.record(&mut found);
        if found.0 {
            *self.0.lock().unwrap().entry(span.into_u64()).or_default() += 1;
        }
    }
}

#[tokio::test]
async fn messages_of_a_stream_do_not_pile_up_in_one_span() {
    const MESSAGES: usize = 20;
    let rig = Rig::start().await;
    keep_apart();
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(told.clone()));
    let messages = vec![message("relu", [1.0, -2.0]); MESSAGES];
    let mut client = client(&rig, Some(&rig.bearer));
    let answers = client.model_stream_infer(tokio_stream::iter(messages)).await.unwrap();
    let mut answers = answers.into_inner();
    let mut count = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        assert_eq!(answer.error_message, "");
        count += 1;
    }
    assert_eq!(count, MESSAGES);
    let told = told.0.lock().unwrap();
    assert!(!told.is_empty());
    assert!(told.values().all(|times| *times == 1), "{told:?}");
}
