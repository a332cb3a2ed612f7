//! Log lines and traces of Immich's requests.

use super::clip::{TOKENIZER, textual, textual_model};
use super::*;
use crate::logs::Log;
use crate::traces::{ABOVE, Collector, TRACE, check};

#[tokio::test]
async fn a_request_has_lines_like_those_of_others() {
    let service = Service::start().await;
    service.add("m.textual", &textual_model(DType::I32), &[("tokenizer.json", TOKENIZER)]);
    service.add("bare.textual", &textual_model(DType::I32), &[]);
    let (log, _guard) = Log::start("lgp_server=debug");
    service.answer(&with_text(&textual("m"), "a dog")).await;
    let lines = log.lines("request answered");
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert_eq!((&line["level"], &line["status"]), (&"DEBUG".into(), &200.into()), "{line}");
    let span = &line["span"];
    assert_eq!((&span["method"], &span["route"]), (&"POST".into(), &"/predict".into()), "{line}");
    assert_eq!(span["model"], "m.textual/1", "{line}");
    assert!(span["task"].is_string(), "{line}");

    // A refusal has its own line, with the same request's span.
    for (model, status, message) in
        [("none", 404, "request answered"), ("bare", 500, "request failed")]
    {
        assert_eq!(service.refusal(&with_text(&textual(model), "a dog")).await.0, status);
        let (refused, ended) = (log.lines("a request of Immich is refused"), log.lines(message));
        let (refused, ended) = (refused.last().unwrap(), ended.last().expect(message));
        assert_eq!(ended["status"], status, "{ended}");
        assert_eq!(refused["span"]["route"], "/predict", "{refused}");
        let trace = |line: &Value| line["span"]["trace"].as_str().map(str::to_owned);
        assert!(trace(ended).is_some() && trace(ended) == trace(refused), "{refused} {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_trace() {
    let (collector, url) = Collector::start().await;
    let service =
        Service::with(ServerConfig { otlp_endpoint: Some(url), ..ServerConfig::default() }).await;
    service.add("m.textual", &textual_model(DType::I32), &[("tokenizer.json", TOKENIZER)]);
    assert_eq!(service.ask("GET /ping HTTP/1.1", b"").await.0, 200);
    let head = format!(
        "POST /predict HTTP/1.1\r\ntraceparent: 00-{TRACE}-{ABOVE}-01\r\n\
         content-type: multipart/form-data; boundary={BOUNDARY}"
    );
    let (status, text) = service.ask(&head, &with_text(&textual("m"), "a dog")).await;
    assert_eq!(status, 200, "{text}");
    let spans = collector.trace(TRACE, 12).await;
    check(&spans, ("POST /predict", ABOVE), "m.textual/1");
    assert!(collector.with("GET /ping").is_empty(), "it is asked all the time");
}
