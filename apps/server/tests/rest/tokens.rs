//! Join tokens over REST.

use crate::rig::Rig;
use serde_json::json;

const TOKENS: &str = "/api/v1/cluster/tokens";

#[tokio::test]
async fn tokens_are_made_listed_and_taken_back() {
    let rig = Rig::start().await;
    assert_eq!(rig.get(TOKENS).await.json(), json!([]));
    let made = rig.post(TOKENS, "").await;
    assert_eq!(made.status, 201);
    let made = made.json();
    assert!(made["token"].as_str().is_some_and(|t| t.starts_with("LGP1.") && t.len() == 102));
    assert_eq!((&made["uses"], &made["state"]), (&json!(1), &json!("open")));
    assert_eq!(rig.post(TOKENS, r#"{"uses":3,"ttl_s":60}"#).await.json()["uses_left"], 3);
    let listed = rig.get(TOKENS).await;
    assert_eq!(listed.json().as_array().map(Vec::len), Some(2));
    let secret = made["token"].as_str().and_then(|t| t.rsplit('.').next()).expect("a secret");
    assert!(!listed.text().contains(secret), "a secret is shown once");

    let path = format!("{TOKENS}/{}", made["id"].as_str().expect("an id"));
    assert_eq!(rig.delete(&path).await.json()["revoked"], json!(true));
    let again = rig.delete(&path).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["error"]["code"]),
        (404, &json!("unknown_token"))
    );
    let made = rig.post(TOKENS, r#"{"role":"client"}"#).await.json();
    assert_eq!(made["role"], "client");
    assert_eq!(rig.get(TOKENS).await.json()[0]["role"], "worker");
    for body in [
        r#"{"uses":0}"#,
        r#"{"ttl_s":0}"#,
        r#"{"uses":1000000}"#,
        r#"{"ttl":1}"#,
        r#"{"role":"king"}"#,
        "[]x",
    ] {
        let refused = rig.post(TOKENS, body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_revoked_and_sent_away() {
    let rig = Rig::start().await;
    const REVOCATIONS: &str = "/api/v1/cluster/revocations";
    assert_eq!(rig.get(REVOCATIONS).await.json(), json!([]));
    let revoked = rig.post(REVOCATIONS, r#"{"name":"w1"}"#).await;
    assert_eq!(revoked.status, 201);
    let revoked = revoked.json();
    let [name, role, closed] = ["name", "role", "connections_closed"].map(|key| &revoked[key]);
    assert_eq!((name, role, closed), (&json!("w1"), &json!("worker"), &json!(1)));
    rig.until("/api/v1/cluster/workers", |a| a.json()[0]["state"] == "lost").await;
    let again = rig.post(REVOCATIONS, r#"{"name":"w1","role":"worker"}"#).await.json();
    assert_eq!(again["connections_closed"], 0);
    rig.post(REVOCATIONS, r#"{"name":"bob","role":"client"}"#).await;
    let listed = rig.get(REVOCATIONS).await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    for body in [r#"{"name":"No Name"}"#, r#"{"name":"w","role":"king"}"#, "{}"] {
        assert_eq!(rig.post(REVOCATIONS, body).await.status, 400, "{body}");
    }
}
