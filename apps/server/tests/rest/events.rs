//! Events of the cluster, as listeners receive them.

use crate::rig::{Options, PATIENCE, Rig, onnx, request};
use axum::body::Body;
use http_body_util::BodyExt;
use lgp_server::ServerConfig;
use serde_json::{Value, json};

const EVENTS: &str = "/api/v1/cluster/events";
const MODELS: &str = "/api/v1/cluster/models";

/// The stream of one listener.
struct Listener {
    body: Body,
    text: String,
}

impl Listener {
    async fn at(rig: &Rig, path: &str, last: Option<&str>) -> Self {
        let mut request = request("GET", path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = rig.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { body: answer.into_body(), text: String::new() }
    }

    /// The lines of the next block of the stream.
    async fn block(&mut self) -> Vec<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let lines = block.lines().map(str::to_owned).collect();
                self.text = rest.to_owned();
                return lines;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.unwrap();
            let bytes = frame.expect("more").unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event with its id.
    async fn event(&mut self) -> (String, Value) {
        loop {
            let block = self.block().await;
            let line = |name: &str| block.iter().find_map(|line| line.strip_prefix(name));
            if let (Some(id), Some(data)) = (line("id: "), line("data: ")) {
                return (id.to_owned(), serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_as_they_happen() {
    let rig = Rig::start().await;
    let mut listener = Listener::at(&rig, EVENTS, None).await;
    let first = listener.block().await;
    assert!(first[0].starts_with("retry: ") && first[1].starts_with("id: "), "{first:?}");
    assert_eq!(rig.post(&format!("{MODELS}/mine"), onnx()).await.status, 201);
    let (id, event) = listener.event().await;
    assert_eq!((&event["event"], &event["worker"]), (&json!("model_loaded"), &json!("w1")));
    assert_eq!((&event["model"]["name"], &event["error"]), (&json!("mine"), &Value::Null));
    assert!(event["at_ms"].as_u64() > Some(1_700_000_000_000), "{event}");
    let (epoch, _) = id.split_once('-').unwrap();
    assert!(first[1].starts_with(&format!("id: {epoch}-")), "{first:?} {id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_hears_what_came_since() {
    let rig = Rig::start().await;
    let mut listener = Listener::at(&rig, EVENTS, None).await;
    let start = listener.block().await[1].strip_prefix("id: ").unwrap().to_owned();
    // The connection breaks before any event.
    drop(listener);
    for name in ["one", "two"] {
        assert_eq!(rig.post(&format!("{MODELS}/{name}"), onnx()).await.status, 201);
    }
    let mut again = Listener::at(&rig, &format!("{EVENTS}?after={start}"), None).await;
    let (first, one) = again.event().await;
    let (_, two) = again.event().await;
    assert_eq!((&one["model"]["name"], &two["model"]["name"]), (&json!("one"), &json!("two")));
    // A browser that reconnects sends its first query again; the header is newer.
    let query = format!("{EVENTS}?after={start}");
    let mut third = Listener::at(&rig, &query, Some(&first)).await;
    assert_eq!(third.event().await.1, two);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_told_first() {
    let server = ServerConfig { events_kept_max: 2, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let mut listener = Listener::at(&rig, EVENTS, None).await;
    let start = listener.block().await[1].strip_prefix("id: ").unwrap().to_owned();
    for name in ["one", "two", "three"] {
        assert_eq!(rig.post(&format!("{MODELS}/{name}"), onnx()).await.status, 201);
        assert_eq!(listener.event().await.1["model"]["name"], *name);
    }
    let mut late = Listener::at(&rig, EVENTS, Some(&start)).await;
    let (id, gap) = late.event().await;
    assert_eq!((&gap["event"], &gap["reason"]), (&json!("gap"), &json!("too_old")));
    assert_eq!(gap["missed"], 1, "{gap}");
    assert_eq!(late.event().await.1["model"]["name"], "two");
    let mut again = Listener::at(&rig, EVENTS, Some(&id)).await;
    assert_eq!(again.event().await.1["model"]["name"], "two");

    let mut other = Listener::at(&rig, EVENTS, Some("1-1")).await;
    let (_, gap) = other.event().await;
    let expected = (&json!("gap"), &json!("other_coordinator"), &Value::Null);
    assert_eq!((&gap["event"], &gap["reason"], &gap["missed"]), expected);
    assert_eq!(other.event().await.1["model"]["name"], "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_counted_and_their_ids_checked() {
    let server = ServerConfig { listeners_max: 1, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    for (query, header, expected) in [
        ("?after=x", None, "after is 'x'"),
        ("?since=1-1", None, "'since', expected after"),
        ("", Some("1"), "Last-Event-ID is '1'"),
    ] {
        let mut request = request("GET", &format!("{EVENTS}{query}"));
        if let Some(header) = header {
            request = request.header("last-event-id", header);
        }
        let answer = rig.call(request.body(Body::empty()).unwrap()).await;
        assert!(answer.status == 400 && answer.text().contains(expected), "{}", answer.text());
    }
    let listener = Listener::at(&rig, EVENTS, None).await;
    let refused = rig.get(EVENTS).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (503, &json!("busy")));
    assert!(refused.headers.contains_key("retry-after"));
    drop(listener);
    let began = std::time::Instant::now();
    loop {
        let request = request("GET", EVENTS).body(Body::empty()).unwrap();
        if rig.send(request).await.status() == 200 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "a listener that is gone keeps its place");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
