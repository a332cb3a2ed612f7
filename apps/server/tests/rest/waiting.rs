//! Waiting for the end of a task within a request, and the limit of such waits.

use crate::rig::{Options, PATIENCE, Rig, request};
use axum::body::Body;
use lgp_server::{ServerConfig, serve};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const TASKS: &str = "/api/v1/cluster/tasks";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// Submits a task that ends once the gate is open; returns its path.
async fn gated(rig: &Rig) -> String {
    let task = r#"{"model":"gated","inputs":[
        {"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let answer = rig.post(TASKS, task).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    format!("{TASKS}/{}", answer.json()["task_id"].as_str().unwrap())
}

async fn with_one_place() -> Rig {
    let server = ServerConfig { waiters_max: 1, ..ServerConfig::default() };
    Rig::with(Options { server, ..Options::default() }).await
}

/// Starts a call that waits for a task, and returns once the call holds the only place.
async fn waiting<T>(rig: &Rig, task: &str, begin: impl Fn() -> JoinHandle<T>) -> JoinHandle<T> {
    let began = Instant::now();
    loop {
        let call = begin();
        tokio::time::sleep(Duration::from_millis(50)).await;
        while !call.is_finished() {
            if rig.get(&format!("{task}?wait_ms=1")).await.status == 503 {
                return call;
            }
        }
        // The call was refused, because the request above held the place for a moment.
        assert!(began.elapsed() < PATIENCE, "nobody gets the place");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_with_the_end_of_a_task_or_of_the_wait() {
    let rig = Rig::start().await;
    let task = gated(&rig).await;
    let began = Instant::now();
    let answer = rig.get(&format!("{task}?wait_ms=150")).await;
    assert!(["queued", "running"].iter().any(|state| answer.json()["state"] == *state));
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());

    let began = Instant::now();
    let longest = format!("{task}?wait_ms=3600000");
    let (answer, ()) = tokio::join!(rig.get(&longest), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.gate.open();
    });
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("succeeded")));
    assert_eq!(answer.json()["outputs"][0]["data"], json!([1.0, 2.0]));
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    // A request for an ended task does not wait.
    let again = rig.get(&longest).await;
    assert_eq!(again.json(), answer.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_that_make_no_sense_are_refused_by_name() {
    let rig = Rig::start().await;
    let task = gated(&rig).await;
    for (query, expected) in [
        ("wait_ms=soon", "wait_ms is 'soon'"),
        ("wait_ms=-1", "wait_ms is '-1'"),
        ("wait_ms", "wait_ms is ''"),
        ("wait=5", "the query has 'wait', expected wait_ms"),
    ] {
        let answer = rig.get(&format!("{task}?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
    assert_eq!(rig.get(&format!("{TASKS}/1-ffff?wait_ms=60000")).await.status, 404);
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_wait_than_may_and_who_went_away_does_not_count() {
    let rig = with_one_place().await;
    let task = gated(&rig).await;
    let path = format!("{task}?wait_ms=3600000");
    let begin = || tokio::spawn(rig.send(request("GET", &path).body(Body::empty()).unwrap()));
    let call = waiting(&rig, &task, begin).await;
    let refused = rig.get(&path).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["code"], "busy");
    assert!(refused.text().contains("1 may wait for tasks"), "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(rig.get(&task).await.status, 200, "who does not wait needs no place");
    call.abort();
    rig.until(&format!("{task}?wait_ms=1"), |answer| answer.status == 200).await;
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_end_with_the_connection_and_with_the_server() {
    let rig = with_one_place().await;
    let task = gated(&rig).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, None, rig.state.clone(), async {
        let _ = stopped.await;
    }));
    let head = format!(
        "GET {task}?wait_ms=3600000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Connection: close\r\n\r\n",
        rig.bearer
    );
    let begin = || {
        let head = head.clone();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        })
    };
    // The caller disconnects.
    waiting(&rig, &task, begin).await.abort();
    rig.until(&format!("{task}?wait_ms=1"), |answer| answer.status == 200).await;

    let call = waiting(&rig, &task, begin).await;
    stop.send(()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains(r#""state":"running""#), "{answer}");
    tokio::time::timeout(PATIENCE, server).await.unwrap().unwrap().unwrap();
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_inferences_of_a_model_than_may_be_under_way_are_refused() {
    let server = ServerConfig { pending_max: 2, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let begin = |model: &str| {
        let infer = request("POST", &format!("/v2/models/{model}/infer"));
        tokio::spawn(rig.send(infer.body(Body::from(INFER)).unwrap()))
    };
    let held = [begin("gated"), begin("gated")];
    rig.until("/api/v1/cluster/stats", |a| a.json()["tasks"]["submitted"] == 2).await;
    let refused = rig.post("/v2/models/gated/infer", INFER).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    let error = refused.json()["error"].to_string();
    assert!(error.contains("2 inferences of model 'gated' are under way"), "{error}");
    rig.gate.open();
    for answer in held {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    assert_eq!(begin("gated").await.unwrap().status(), 200, "there is room again");
    assert_eq!(begin("relu").await.unwrap().status(), 200);
}
