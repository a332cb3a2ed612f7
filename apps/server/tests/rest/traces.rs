//! Traces as an OTLP collector receives them over HTTP.

use crate::ensembles::{SIDE, classifier};
use crate::grpc::{client, request as message};
use crate::rig::{Options, PATIENCE, Rig, request};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use lgp_server::ServerConfig;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic::Request;

const BODY: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1.5,2.5]}]}"#;
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const ABOVE: &str = "b7ad6b7169203331";

#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<Span>>>);

async fn take(State(Collector(spans)): State<Collector>, headers: HeaderMap, body: Bytes) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let message = ExportTraceServiceRequest::decode(body).unwrap();
    for of_resource in message.resource_spans {
        let resource = of_resource.resource.unwrap();
        assert!(resource.attributes.iter().any(|it| it.key == "service.name"), "{resource:?}");
        let all = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.lock().unwrap().extend(all);
    }
}

impl Collector {
    pub(crate) async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        tokio::spawn(async { axum::serve(listener, app).await });
        (collector, url)
    }

    /// The spans of a trace by name, once there are `count`.
    pub(crate) async fn trace(&self, id: &str, count: usize) -> BTreeMap<String, Span> {
        let began = Instant::now();
        loop {
            let all = self.0.lock().unwrap().clone();
            let found = all.into_iter().filter(|span| hex(&span.trace_id) == id);
            let found: BTreeMap<_, _> = found.map(|span| (span.name.clone(), span)).collect();
            if found.len() >= count {
                assert_eq!(found.len(), count, "{found:?}");
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{found:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The ids of the traces with a span of this name.
    pub(crate) fn with(&self, name: &str) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        spans.iter().filter(|span| span.name == name).map(|span| hex(&span.trace_id)).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

async fn rig(endpoint: String, ratio: f64) -> Rig {
    let server =
        ServerConfig { otlp_endpoint: Some(endpoint), otlp_ratio: ratio, ..Default::default() };
    Rig::with(Options { server, ..Options::default() }).await
}

fn traced(method: &str, path: &str, flags: &str) -> axum::http::request::Builder {
    request(method, path).header("traceparent", format!("00-{TRACE}-{ABOVE}-{flags}"))
}

/// Checks the spans of an inference's trace: each span's name and parent.
pub(crate) fn check(spans: &BTreeMap<String, Span>, (root, above): (&str, &str), model: &str) {
    let whole = &spans[root];
    assert_eq!(hex(&whole.parent_span_id), above);
    assert_eq!(whole.kind(), SpanKind::Server);
    for (name, above) in [
        ("inference", root),
        ("decode", "inference"),
        ("task", "inference"),
        ("queue", "task"),
        ("attempt", "task"),
        ("device_queue", "attempt"),
        ("model", "attempt"),
        ("encode", "inference"),
    ] {
        let (span, above) = (&spans[name], &spans[above]);
        assert_eq!(span.parent_span_id, above.span_id, "{name}");
        assert!(span.start_time_unix_nano >= above.start_time_unix_nano, "{name}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{name}");
        // The two clocks are read one after the other.
        assert!(span.end_time_unix_nano <= above.end_time_unix_nano + 1_000_000, "{name}");
    }
    for name in ["attempt", "device_queue", "model"] {
        let [worker, device] =
            ["lgp.worker", "lgp.device"].map(|key| text(&spans[name], key).unwrap());
        assert!(worker == "w1" && device.starts_with("cpu"), "{name}: {worker}, {device}");
    }
    assert_eq!(text(&spans["attempt"], "lgp.attempt").as_deref(), Some("1"));
    assert_eq!(text(&spans["inference"], "lgp.model").as_deref(), Some(model));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_over_rest_is_one_trace() {
    let (collector, url) = Collector::start().await;
    let rig = rig(url, 1.0).await;
    let path = "/v2/models/relu/infer";
    let answer = rig.call(traced("POST", path, "01").body(Body::from(BODY)).unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let spans = collector.trace(TRACE, 9).await;
    let root = "POST /v2/models/{model}/infer";
    check(&spans, (root, ABOVE), "relu/1");
    assert_eq!(text(&spans[root], "http.response.status_code").as_deref(), Some("200"));
    let page = rig.until("/metrics", |a| a.text().contains("lgp_trace_spans_sent_total")).await;
    assert!(page.text().contains("lgp_trace_spans_dropped_total{reason=\"queue_full\"} 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_over_grpc_is_one_trace() {
    let (collector, url) = Collector::start().await;
    let rig = rig(url, 1.0).await;
    let mut client = client(&rig, Some(&rig.bearer));
    let mut call = Request::new(message("relu", [1.0, 2.0]));
    let above = format!("00-{TRACE}-{ABOVE}-01");
    call.metadata_mut().insert("traceparent", above.parse().unwrap());
    client.model_infer(call).await.unwrap();
    let spans = collector.trace(TRACE, 9).await;
    check(&spans, ("POST /inference.GRPCInferenceService/ModelInfer", ABOVE), "relu/1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_down_to_the_nodes_of_a_run() {
    let (collector, url) = Collector::start().await;
    let rig = rig(url, 0.0).await;
    let added = rig.post("/api/v1/cluster/models/real.clf", classifier()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    rig.until("/v2/models/real.clf/ready", |answer| answer.status == 200).await;
    let (path, values) = ("/v2/models/real.clf/infer", vec![1; 3 * (SIDE * SIDE) as usize]);
    let x = json!({"name": "x", "shape": [1, 3, SIDE, SIDE], "datatype": "FP32", "data": values});
    let body = json!({"inputs": [x]}).to_string();
    let ask = || rig.call(traced("POST", path, "01").body(Body::from(body.clone())).unwrap());
    assert_eq!(ask().await.status, 200);
    let spans = collector.trace(TRACE, 11).await;
    check(&spans, ("POST /v2/models/{model}/infer", ABOVE), "real.clf/1");
    let (node, model) = (&spans["MatMulPacked"], &spans["model"]);
    assert_eq!(node.parent_span_id, model.span_id);
    assert!(text(node, "lgp.node").is_some());
    assert!(model.start_time_unix_nano <= node.start_time_unix_nano, "{node:?} {model:?}");
    assert!(node.end_time_unix_nano <= model.end_time_unix_nano, "{node:?} {model:?}");
    let count = |name: &str| collector.with(name).len();
    let began = Instant::now();
    while count("MatMulPacked") < 2 {
        assert!(began.elapsed() < PATIENCE, "the nodes of no other run are told");
        assert_eq!(ask().await.status, 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_seen_where_it_happened() {
    let (collector, url) = Collector::start().await;
    let rig = rig(url, 1.0).await;
    let path = "/v2/models/fails/infer";
    rig.call(traced("POST", path, "01").body(Body::from(BODY)).unwrap()).await;
    // No encoding took place, so there is no span for it.
    let spans = collector.trace(TRACE, 8).await;
    for name in ["POST /v2/models/{model}/infer", "inference", "task", "attempt"] {
        assert_eq!(spans[name].status.as_ref().unwrap().code, 2, "{name}");
    }
    for name in ["inference", "task", "attempt"] {
        assert_eq!(text(&spans[name], "error.type").as_deref(), Some("model_failed"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_decides_whether_a_trace_is_kept_and_the_ratio_for_others() {
    let (collector, url) = Collector::start().await;
    let rig = rig(url, 0.0).await;
    let path = "/v2/models/relu/infer";
    rig.call(traced("POST", path, "00").body(Body::from(BODY)).unwrap()).await;
    rig.post(path, BODY).await;
    rig.call(traced("GET", "/v2/models/relu", "01").body(Body::empty()).unwrap()).await;
    let spans = collector.trace(TRACE, 1).await;
    assert!(spans.contains_key("GET /v2/models/{model}"), "{spans:?}");
    assert_eq!(collector.0.lock().unwrap().len(), 1, "no other was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_nothing_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = rig(format!("http://{}", listener.local_addr().unwrap()), 1.0).await;
    let dropped = |page: &str| {
        let name = "lgp_trace_spans_dropped_total{reason=\"queue_full\"} ";
        page.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok())
    };
    let began = Instant::now();
    // Each makes eight spans or more, and the queue holds 2048.
    for _ in 0..300 {
        assert_eq!(rig.post("/v2/models/relu/infer", BODY).await.status, 200);
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let page = rig.get("/metrics").await.text();
    assert!(dropped(&page) > Some(0), "{page}");
    assert!(page.contains("lgp_trace_spans_sent_total 0\n"), "{page}");
    let began = Instant::now();
    drop(rig);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_a_collector_rejects_are_lost() {
    /// Accepts each message except for two of its spans.
    async fn most(body: Bytes) -> Vec<u8> {
        assert!(ExportTraceServiceRequest::decode(body).is_ok());
        let (rejected_spans, error_message) = (2, "too old".to_owned());
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
        ExportTraceServiceResponse { partial_success }.encode_to_vec()
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = rig(format!("http://{}", listener.local_addr().unwrap()), 0.0).await;
    let app = Router::new().route("/v1/traces", post(most));
    tokio::spawn(async { axum::serve(listener, app).await });
    let ask = traced("POST", "/v2/models/relu/infer", "01").body(Body::from(BODY)).unwrap();
    assert_eq!(rig.call(ask).await.status, 200);
    let figure = |page: &str, name: &str| -> u64 {
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).expect(name)
    };
    let page = rig.until("/metrics", |page| figure(&page.text(), "lgp_trace_spans_sent_total") > 0);
    let page = page.await.text();
    let sent = figure(&page, "lgp_trace_spans_sent_total");
    let lost = figure(&page, "lgp_trace_spans_dropped_total{reason=\"not_taken\"}");
    // All nine spans of the trace, in one or more messages.
    assert!(lost >= 2 && lost % 2 == 0 && sent + lost <= 9, "{sent} sent, {lost} lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_nothing_is_counted() {
    let rig = Rig::start().await;
    let answer =
        rig.call(traced("POST", "/v2/models/relu/infer", "01").body(Body::from(BODY)).unwrap());
    assert_eq!(answer.await.status, 200);
    assert!(!rig.get("/metrics").await.text().contains("lgp_trace_spans"));
}

#[tokio::test(flavor = "multi_thread")]
async fn buckets_name_a_trace_that_is_kept() {
    let rig = Rig::start().await;
    let path = "/v2/models/relu/infer";
    rig.call(traced("POST", path, "01").body(Body::from(BODY)).unwrap()).await;
    // This request's trace is not sampled, so no exemplar has it.
    rig.post(path, BODY).await;
    let wants = |accept: &'static str| request("GET", "/metrics").header("accept", accept);
    let wanted = wants("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    let page = rig.call(wanted.body(Body::empty()).unwrap()).await;
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.headers["content-type"], format);
    let page = page.text();
    assert!(page.ends_with("# EOF\n"), "{page}");
    let name = "lgp_inference_request_duration_seconds";
    let found: Vec<&str> = page.lines().filter(|line| line.contains(" # {")).collect();
    let [line] = found[..] else { panic!("one exemplar: {page}") };
    let (sample, exemplar) = line.split_once(" # ").unwrap();
    assert!(
        sample.starts_with(&format!("{name}_bucket{{model=\"relu\",version=\"1\",le=")),
        "{line}"
    );
    let values = exemplar.strip_prefix(&format!("{{trace_id=\"{TRACE}\"}} ")).expect(line);
    let values: Vec<f64> = values.split(' ').map(|value| value.parse().expect(line)).collect();
    let bound = sample.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(values[0] > 0.0 && values[0] <= bound.replace('+', "").parse().unwrap(), "{line}");
    assert!(values[1] > 1.6e9, "{line}");
    for line in [
        "# TYPE nv_inference_request_success unknown",
        r#"nv_inference_request_success{model="relu",version="1"} 2"#,
        "# TYPE lgp_tasks_finished counter",
        r#"lgp_tasks_finished_total{state="succeeded"} 2"#,
    ] {
        assert!(page.lines().any(|other| other == line), "{line:?} is missing in {page}");
    }

    let text = rig.call(wants("text/plain").body(Body::empty()).unwrap()).await;
    assert_eq!(text.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = text.text();
    assert!(!text.contains("# {") && !text.contains("# EOF"), "{text}");
    assert!(text.contains("# TYPE nv_inference_request_success counter\n"), "{text}");
    assert!(text.contains(&format!("{name}_count{{model=\"relu\",version=\"1\"}} 2\n")), "{text}");
}
