//! Log lines and traces of images.

use super::*;
use crate::logs::Log;
use crate::traces::{Collector, check};
use std::time::{Duration, Instant};

/// A detector with a model; the file's name names the model.
async fn with_model(addr: SocketAddr, file: &str) -> Client {
    let mut client = Client::connect(addr).await;
    let sends = json!({ "model_data": true, "model_name": file });
    assert_eq!(client.tell(sends, &[&onnx("m")]).await["model_loaded"], true);
    client
}

#[tokio::test]
async fn an_image_has_a_line_of_the_log() {
    let limits = ServerConfig { frigate_timeout_ms: 10_000, ..ServerConfig::default() };
    let (_rig, addr) = start(limits).await;
    let mut client = with_model(addr, "m.onnx").await;
    let (log, _guard) = Log::start("lgp_server=debug");
    client.detect(image(), &IMAGE).await;
    let lines = log.lines("request answered");
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert_eq!((&line["level"], &line["status"]), (&"DEBUG".into(), &200.into()), "{line}");
    assert!(line["duration_ms"].as_f64() > Some(0.0), "{line}");
    let span = &line["span"];
    assert_eq!((&span["method"], &span["route"]), (&"IMAGE".into(), &"frigate".into()), "{line}");
    assert_eq!(span["model"], "frigate.m/1", "{line}");
    assert!(span["task"].is_string(), "{line}");

    let mut header = image();
    header["dtype"] = "object".into();
    for _ in 0..2 {
        client.detect(header.clone(), &IMAGE).await;
    }
    let lines = log.lines("request answered");
    assert_eq!(lines.iter().filter(|line| line["status"] == 400).count(), 2, "{lines:?}");
    let why = log.lines("a detector gets no boxes");
    let [why] = &why[..] else { panic!("told once: {why:?}") };
    assert_eq!(why["span"]["trace"], lines[1]["span"]["trace"], "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_one_trace() {
    const IMAGES: &str = "IMAGE frigate";
    let (collector, url) = Collector::start().await;
    let limits = ServerConfig {
        frigate_timeout_ms: 10_000,
        otlp_endpoint: Some(url),
        ..ServerConfig::default()
    };
    let (_rig, addr) = start(limits).await;
    let mut client = with_model(addr, "m.onnx").await;
    client.detect(image(), &IMAGE).await;
    let began = Instant::now();
    while collector.with(IMAGES).is_empty() {
        assert!(began.elapsed() < PATIENCE, "no trace came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let traces = collector.with(IMAGES);
    let [trace] = &traces[..] else { panic!("one image is one trace: {traces:?}") };
    check(&collector.trace(trace, 9).await, (IMAGES, ""), "frigate.m/1");
}
