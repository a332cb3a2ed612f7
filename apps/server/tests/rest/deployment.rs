//! Changes of a model's deployment, field by field.

use crate::rig::{Answer, Rig, request};
use axum::body::Body;
use serde_json::{Value, json};

const MODELS: &str = "/api/v1/cluster/models";

pub(crate) async fn say(rig: &Rig, method: &str, name: &str, body: &Value) -> Answer {
    let request = request(method, &format!("{MODELS}/{name}/deployment"));
    rig.call(request.body(Body::from(body.to_string())).unwrap()).await
}

async fn said(rig: &Rig) -> Value {
    rig.get(&format!("{MODELS}/relu")).await.json()["deployment"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_leaves_the_fields_that_it_does_not_name() {
    let rig = Rig::start().await;
    let all = json!({
        "memory_bytes": 4096, "cache_bytes": 4096, "version_policy": "latest:3",
        "batching": {"max": 8, "preferred": [4], "delay_us": 500},
        "warm_up": [{"shapes": {"x": [4, 2]}}],
    });
    let answer = say(&rig, "PUT", "relu", &all).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut expected = answer.json()["deployment"].clone();
    for (field, change, becomes) in [
        ("cache_bytes", json!(8192), json!(8192)),
        ("cache_bytes", json!(null), json!(null)),
        ("family", json!("Polaris"), json!("Polaris")),
        ("batching", json!({"max": 2}), json!({"max": 2, "preferred": [], "delay_us": 0})),
        ("variants", json!(["gated"]), json!(["gated"])),
        ("variants", json!(null), json!([])),
        ("warm_up", json!(null), json!([])),
        ("version_policy", json!("all"), json!("all")),
    ] {
        let answer = say(&rig, "PATCH", "relu", &json!({ field: change })).await;
        assert_eq!(answer.status, 200, "{field}: {}", answer.text());
        expected[field] = becomes;
        assert_eq!(answer.json()["deployment"], expected, "{field}");
        assert_eq!(said(&rig).await, expected, "{field}");
    }
    // An error in one field keeps the others from changing.
    for (field, wrong, status, part) in [
        ("memory", json!(1), 400, "memory"),
        ("memory", json!(null), 400, "memory"),
        ("backend", json!(1), 400, "backend"),
        ("batching", json!({"preferred": [1]}), 400, "max"),
        ("batching", json!({"max": 4, "preferred": [8]}), 400, "8"),
        ("version_policy", json!("7"), 400, "chooses none"),
        ("variants", json!(["nope"]), 404, "nope"),
    ] {
        let change = json!({ field: wrong, "cache_bytes": 1 });
        let answer = say(&rig, "PATCH", "relu", &change).await;
        assert_eq!(answer.status.as_u16(), status, "{change}: {}", answer.text());
        assert!(answer.text().contains(part), "{change}: {}", answer.text());
        assert_eq!(said(&rig).await, expected, "{change}");
    }
    assert_eq!(say(&rig, "PATCH", "none", &json!({})).await.status, 404);
    for name in ["%00", "a%2f..", &"a".repeat(300)] {
        assert_eq!(say(&rig, "PATCH", name, &json!({})).await.status, 400, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_come_at_once_are_all_kept() {
    let rig = Rig::start().await;
    let changes = [
        json!({"memory_bytes": 4096}),
        json!({"backend": "cpu"}),
        json!({"family": "Polaris"}),
        json!({"run_limit_ms": 60_000}),
        json!({"cache_bytes": 4096}),
        json!({"cache_ttl_ms": 50}),
        json!({"variants": ["gated"]}),
        json!({"batching": {"max": 2, "preferred": [], "delay_us": 0}}),
    ];
    for answer in
        futures_util::future::join_all(changes.iter().map(|c| say(&rig, "PATCH", "relu", c))).await
    {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let said = said(&rig).await;
    for change in &changes {
        let (field, value) = change.as_object().unwrap().iter().next().unwrap();
        assert_eq!(&said[field], value, "{field}");
    }
}
