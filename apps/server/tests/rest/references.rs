//! Tasks whose inputs are outputs of other tasks.

use crate::rig::{Answer, Options, Rig};
use lgp_server::ServerConfig;
use serde_json::{Value, json};

const TASKS: &str = "/api/v1/cluster/tasks";

fn task(model: &str) -> Value {
    let x = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [-1, 2]});
    json!({"model": model, "inputs": [x]})
}

fn following(task: &str, output: &str) -> Value {
    let from = json!({"task": task, "output": output});
    json!({"model": "relu", "inputs": [{"name": "x", "from": from}]})
}

async fn submit(rig: &Rig, task: &Value) -> String {
    let answer = rig.post(TASKS, task.to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    answer.json()["task_id"].as_str().unwrap().to_owned()
}

async fn result(rig: &Rig, id: &str) -> Value {
    let ended = |answer: &Answer| {
        let state = answer.json()["state"].clone();
        state != "queued" && state != "running"
    };
    rig.until(&format!("{TASKS}/{id}"), ended).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_is_the_next_input_once_it_is_there() {
    let rig = Rig::start().await;
    let first = submit(&rig, &task("gated")).await;
    let next = following(&first, "double");
    let waits = submit(&rig, &next);
    let opens = async {
        // The waiting request is not a task yet.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(rig.get(TASKS).await.json().as_array().unwrap().len(), 1);
        rig.gate.open();
    };
    let (second, ()) = tokio::join!(waits, opens);
    assert_eq!(result(&rig, &second).await["outputs"][1]["data"], json!([-4.0, 8.0]));
    // An ended task is not waited for, whether submitted alone or in a batch.
    let batch = json!({"tasks": [next, following(&second, "y")]});
    let answer = rig.post(&format!("{TASKS}/batch"), batch.to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    for (at, expected) in [json!([0.0, 4.0]), json!([0.0, 4.0])].iter().enumerate() {
        let id = answer.json()["tasks"][at]["task_id"].as_str().unwrap().to_owned();
        assert_eq!(&result(&rig, &id).await["outputs"][0]["data"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_does_not_come_is_named() {
    let server = ServerConfig { waiters_max: 0, ..ServerConfig::default() };
    for (options, code, part) in [
        (Options { server, ..Options::default() }, 503, "0 may wait for tasks"),
        (Options::default(), 503, "did not end in time"),
    ] {
        let rig = Rig::with(options).await;
        let waits = submit(&rig, &task("gated")).await;
        let mut late = following(&waits, "y");
        late["deadline_ms"] = json!(50);
        let answer = rig.post(TASKS, late.to_string()).await;
        assert_eq!(answer.status.as_u16(), code, "{}", answer.text());
        assert!(answer.text().contains(part), "{}", answer.text());
        assert!(answer.text().contains("input 'x'"), "{}", answer.text());
        rig.gate.open();
    }
    let rig = Rig::start().await;
    let fails = submit(&rig, &task("fails")).await;
    let good = submit(&rig, &task("relu")).await;
    let mut both = following(&good, "y");
    both["inputs"][0]["data"] = json!([1, 2]);
    let mut more = following(&good, "y");
    more["inputs"][0]["from"]["version"] = json!(1);
    let mut bare = following(&good, "y");
    bare["inputs"][0] = json!({"name": "x", "datatype": "FP32", "data": [1, 2]});
    for (next, status, part) in [
        (following(&fails, "y"), 409, "has failed: model_failed"),
        (following("nope", "y"), 404, "input 'x': no task 'nope'"),
        (following(&good, "z"), 400, "has no output 'z', expected 'y', 'double'"),
        (both, 400, "input 'x' has more than name and from"),
        (more, 400, "unknown field `version`"),
        (bare, 400, "missing field `shape`"),
    ] {
        let answer = rig.post(TASKS, next.to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{part}: {}", answer.text());
        assert!(answer.text().contains(part), "{part}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_task_is_known_though_the_result_that_it_came_from_is_gone() {
    let rig = Rig::start().await;
    let first = submit(&rig, &task("relu")).await;
    let mut next = following(&first, "y");
    next["idempotency_key"] = json!("once");
    let second = submit(&rig, &next).await;
    assert_eq!(submit(&rig, &next).await, second, "the key stands for it");
    result(&rig, &second).await;
    let gone = rig.delete(&format!("{TASKS}/{first}/result")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(submit(&rig, &next).await, second);
    next["inputs"][0]["from"]["output"] = json!("double");
    let answer = rig.post(TASKS, next.to_string()).await;
    assert!(answer.status == 410 && answer.text().contains("input 'x'"), "{}", answer.text());
}
