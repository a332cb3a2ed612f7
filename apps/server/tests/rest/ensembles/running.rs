//! Running an ensemble's steps: concurrently, within one deadline, and cancelled with their client.

use super::{INFER, TASKS, check, jpeg, labeller, plain, post_binary, put};
use crate::rig::{Answer, PATIENCE, Rig, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use serde_json::json;
use std::time::{Duration, Instant};

/// Two independent runs of `gated` on the input, and one that needs both.
fn both() -> String {
    let step = |from: &str, to: &str| {
        format!(
            "[[steps]]\nmodel = \"gated\"\ninputs = {{ x = \"{from}\" }}\noutputs = {{ y = \"{to}\" }}\n"
        )
    };
    let head = plain("gated");
    let head = head.split("[[steps]]").next().unwrap();
    let head = head.replace("{ name = \"b\" }", "{ name = \"b\" }, { name = \"c\" }");
    [head, step("a", "b"), step("a", "c")].concat()
}

async fn states(rig: &Rig) -> Vec<String> {
    let tasks = rig.get(TASKS).await.json();
    let all = tasks.as_array().unwrap().iter();
    all.map(|task| task["state"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_is_named_and_nothing_else_is_told() {
    let rig = Rig::start().await;
    put(&rig, "broken", "ensemble.toml", &plain("fails"));
    let answer = rig.post("/v2/models/broken/infer", INFER).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("step 1 (model fails) of 'broken'"), "{}", answer.text());
    assert!(!answer.text().contains("secret"), "{}", answer.text());
    for name in ["broken", "fails"] {
        let page = rig.get("/metrics").await.text();
        let line = format!(
            "nv_inference_request_failure{{model=\"{name}\",version=\"1\",reason=\"BACKEND\"}} 1"
        );
        assert!(page.contains(&line), "{line} in {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_wait_for_nothing_run_together_with_the_priority_of_the_request() {
    let rig = Rig::start().await;
    put(&rig, "both", "ensemble.toml", &both());
    let body = INFER.replacen('{', r#"{"parameters":{"priority":1},"#, 1);
    let asks = rig.post("/v2/models/both/infer", body);
    let watches = async {
        let two = |a: &Answer| a.json().as_array().unwrap().len() == 2;
        let tasks = rig.until(TASKS, two).await.json();
        rig.gate.open();
        tasks
    };
    let (answer, tasks) = tokio::join!(asks, watches);
    assert_eq!(answer.status, 200, "{}", answer.text());
    for task in tasks.as_array().unwrap() {
        assert_eq!(task["priority"], "critical");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_for_the_whole_and_who_goes_away_is_not_worked_for() {
    let rig = Rig::start().await;
    put(&rig, "both", "ensemble.toml", &both());
    let body = INFER.replacen('{', r#"{"parameters":{"timeout":100000},"#, 1);
    let began = Instant::now();
    let answer = rig.post("/v2/models/both/infer", body).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("'both'"), "{}", answer.text());
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert!(began.elapsed() < PATIENCE / 2);

    let path = "/v2/models/both/infer";
    let gone = rig.send(request("POST", path).body(Body::from(INFER)).unwrap());
    let four = |answer: &Answer| answer.json().as_array().unwrap().len() == 4;
    tokio::select! {
        answer = gone => panic!("{} before the gate was opened", answer.status()),
        _ = rig.until(TASKS, four) => {}
    }
    let ended = |answer: &Answer| {
        let tasks = answer.json();
        let mut all = tasks.as_array().unwrap().iter();
        all.all(|task| task["state"] != "queued" && task["state"] != "running")
    };
    rig.until(TASKS, ended).await;
    let states = states(&rig).await;
    assert!(!states.contains(&"succeeded".to_owned()), "{states:?}");
    rig.gate.open();
    let page = rig.get("/metrics").await.text();
    let line = r#"nv_inference_request_failure{model="both",version="1",reason="CANCELED"} 1"#;
    assert!(page.contains(line), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_ends_on_what_it_began_with() {
    let rig = Rig::start().await;
    put(&rig, "old", "ensemble.toml", &plain("gated"));
    let asks = rig.post("/v2/models/old/infer", INFER);
    let changes = async {
        rig.until(TASKS, |answer| !answer.json().as_array().unwrap().is_empty()).await;
        put(&rig, "old", "ensemble.toml", &plain("relu").replace("{ y =", "{ double ="));
        assert_eq!(rig.post("/v2/repository/models/old/load", "").await.status, 200);
        rig.gate.open();
    };
    let (answer, ()) = tokio::join!(asks, changes);
    assert_eq!(answer.json()["outputs"][0]["data"], json!([0.0, 2.0]), "{}", answer.text());
    let now = rig.post("/v2/models/old/infer", INFER).await;
    assert_eq!(now.json()["outputs"][0]["data"], json!([-2.0, 4.0]), "{}", now.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_need_most_of_the_room_follow_one_another() {
    // An image takes 3 of the 4 MiB while it is decoded.
    let server =
        ServerConfig { bodies_bytes_max: 4 << 20, body_timeout_ms: 9_000, ..Default::default() };
    let rig = labeller(server).await;
    let one = async |shade: u8| {
        let picture = [jpeg(700, 560, shade)];
        check(&post_binary(&rig, "labels", &picture, json!({})).await, &picture);
    };
    let began = Instant::now();
    futures_util::future::join_all((0..8).map(one)).await;
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}
