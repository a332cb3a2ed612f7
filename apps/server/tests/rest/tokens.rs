//! Join tokens and revocations over REST.

use crate::rig::{Options, Rig};
use lgp_sdk::cluster::Pki;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const TOKENS: &str = "/api/v1/cluster/tokens";
const REVOCATIONS: &str = "/api/v1/cluster/revocations";
const WORKERS: &str = "/api/v1/cluster/workers";

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
    assert_eq!(rig.get(REVOCATIONS).await.json(), json!([]));
    let revoked = rig.post(REVOCATIONS, r#"{"name":"w1"}"#).await;
    assert_eq!(revoked.status, 201);
    let revoked = revoked.json();
    let [name, role, closed] = ["name", "role", "connections_closed"].map(|key| &revoked[key]);
    assert_eq!((name, role, closed), (&json!("w1"), &json!("worker"), &json!(1)));
    rig.until(WORKERS, |a| a.json()[0]["state"] == "lost").await;
    let again = rig.post(REVOCATIONS, r#"{"name":"w1","role":"worker"}"#).await.json();
    assert_eq!(again["connections_closed"], 0);
    rig.post(REVOCATIONS, r#"{"name":"bob","role":"client"}"#).await;
    let listed = rig.get(REVOCATIONS).await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    for body in [r#"{"name":"No Name"}"#, r#"{"name":"w","role":"king"}"#, "{}"] {
        assert_eq!(rig.post(REVOCATIONS, body).await.status, 400, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_cannot_be_written_down_holds_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("pki");
    let pki = Pki::open(&authority).unwrap();
    let rig = Rig::with(Options { pki: Some(pki), ..Options::default() }).await;
    let file = authority.join("revoked.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let files = || std::fs::read_dir(&authority).unwrap().count();
    let before = files();
    let refused = rig.post(REVOCATIONS, r#"{"name":"w1"}"#).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], "not_kept", "{error}");
    for (key, part) in [("message", "until the coordinator restarts"), ("hint", "revoke again")] {
        assert!(error[key].as_str().is_some_and(|text| text.contains(part)), "{key}: {error}");
    }
    assert!(!refused.text().contains("revoked.json"), "paths are for the log: {error}");
    rig.until(WORKERS, |a| a.json()[0]["state"] == "lost").await;
    assert_eq!(rig.get(REVOCATIONS).await.json()[0]["name"], "w1");
    assert_eq!(files(), before, "nothing half-made is left");
    // Once the folder is repaired, repeating the revocation stores it.
    std::fs::remove_dir(&file).unwrap();
    assert_eq!(rig.post(REVOCATIONS, r#"{"name":"w1"}"#).await.status, 201);
    let kept = Pki::open(&authority).unwrap().revoked();
    assert_eq!(kept.iter().map(|revoked| revoked.name.as_str()).collect::<Vec<_>>(), ["w1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_revocations_than_are_kept_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("pki");
    Pki::open(&authority).unwrap();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let gone = |n: u32| json!({"role": "worker", "name": format!("gone-{n}"), "revoked_s": now_s});
    let members: Vec<Value> = (0..4096).map(gone).collect();
    let revoked = json!({"longest_life_s": 1_000_000, "members": members}).to_string();
    std::fs::write(authority.join("revoked.json"), revoked).unwrap();
    let pki = Pki::open(&authority).unwrap();
    let rig = Rig::with(Options { pki: Some(pki), ..Options::default() }).await;
    let refused = rig.post(REVOCATIONS, r#"{"name":"w1"}"#).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], "conflict", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("4096 members are revoked, expected fewer"), "{message}");
    assert!(error["hint"].is_string(), "{error}");
    assert_eq!(rig.get(WORKERS).await.json()[0]["state"], "ready", "nothing happened to it");
    // A member that is listed already takes no more space.
    assert_eq!(rig.post(REVOCATIONS, r#"{"name":"gone-7"}"#).await.status, 201);
    let listed = rig.get(REVOCATIONS).await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(4096));
}
