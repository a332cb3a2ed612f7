//! A coordinator that other machines reach: keys, certificates and access.

use crate::harness::{Cluster, World};
use lgp_sdk::cluster::Pki;
use serde_json::{Value, json};
use std::time::Duration;

const ANY: &str = "127.0.0.1:0";

/// `start` for every address, on free ports.
fn start<'a>(data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own =
        ["start", "--json", "--data", data, "--http", "0.0.0.0:0", "--grpc", ANY, "--quic", ANY];
    [&own[..], &["--workers", "1"], more].concat()
}

#[test]
fn the_network_takes_a_certificate_and_a_key() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    assert_eq!(world.run(&start(&data, &[])).error(1).0, "address_not_loopback");
    let refused = world.run(&start(&data, &["--tls", "self-signed"]));
    assert_eq!(refused.error(1).0, "no_keys");
    for line in ["radeon-cluster keys create", "--tls self-signed"] {
        assert!(refused.stderr.contains(line), "{refused:?}");
    }
    let any = ["start", "--json", "--data", &data, "--http", ANY, "--grpc", "0.0.0.0:0"];
    let refused = world.run(&[&any[..], &["--quic", ANY, "--workers", "1"]].concat());
    assert_eq!(refused.error(1).0, "address_not_loopback");
    assert!(refused.stderr.contains("--grpc 0.0.0.0:0 --tls self-signed"), "{refused:?}");
    for (certificate, code) in [("none.pem", 2), ("none.pem,key.pem", 1)] {
        let failed = world.run(&start(&data, &["--tls", certificate]));
        assert_eq!(failed.code, Some(code), "{failed:?}");
        assert!(failed.stderr.contains("none.pem"), "{failed:?}");
    }

    // A key can be made while no coordinator runs.
    let keys = |args: &[&str]| world.run(&[&["keys"], args, &["--json", "--data", &data]].concat());
    let made = keys(&["create", "--role", "submit", "--note", "clinic"]).json();
    let text = made["key"].as_str().expect("a key").to_owned();
    let key = world.write("key", &text).display().to_string();
    assert_eq!(keys(&["ls"]).json()[0]["note"], "clinic");
    let brief = keys(&["create", "--role", "infer"]).json()["id"].clone();
    keys(&["revoke", brief.as_str().expect("a name")]).json();
    let log = std::fs::read_to_string(world.path("data/audit.log")).expect("a log");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> = lines.iter().map(|line| (&line["method"], &line["made"])).collect();
    let of = |id: &Value, role: &str| json!({ "id": id, "role": role });
    let made_of = [of(&made["id"], "submit"), of(&brief, "infer"), Value::Null];
    let methods = [json!("POST"), json!("POST"), json!("DELETE")];
    assert_eq!(told, methods.iter().zip(&made_of).collect::<Vec<_>>(), "{log}");

    let more = |frigate| start(&data, &["--tls", "self-signed", "--frigate", frigate]);
    let refused = world.run(&more("0.0.0.0:0"));
    assert_eq!(refused.error(1).0, "address_not_loopback", "no key would help");
    assert!(refused.stderr.contains("ssh -N -L"), "{refused:?}");
    let refused = world.run(&start(&data, &["--tls", "self-signed", "--immich", "0.0.0.0:0"]));
    assert_eq!(refused.error(1).0, "address_not_loopback", "no key would help");
    let endpoint = world.run(&[more(ANY), vec!["--immich", ANY]].concat()).json();
    let cluster = Cluster { world, endpoint };
    let endpoint = |name: &str| cluster.endpoint[name].as_str().expect(name).to_owned();
    let (url, fingerprint) = (endpoint("http"), endpoint("fingerprint"));
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    assert!(endpoint("frigate").starts_with("tcp://127.0.0.1:"));
    assert!(endpoint("immich").starts_with("http://127.0.0.1:"));
    let status =
        |more: &[&str]| cluster.world.run(&[&["stats", "--json", "--server", &url], more].concat());
    let trusted = ["--fingerprint", fingerprint.as_str(), "--key-file", key.as_str()];
    assert_eq!(status(&trusted).json()["workers"]["ready"], 1);
    assert_eq!(status(&trusted[..2]).error(1).0, "unauthorized");
    let distrusted = status(&trusted[2..]);
    assert_eq!(distrusted.error(1).0, "unreachable", "nobody vouches for it");
    assert!(distrusted.stderr.contains("--fingerprint"), "{distrusted:?}");
    let other = "0".repeat(64);
    let other = ["--fingerprint", other.as_str(), "--key-file", key.as_str()];
    assert_eq!(status(&other).error(1).0, "unknown_authority");
    let forbidden = [&["stop", "--json", "--server", &url][..], &trusted].concat();
    assert_eq!(cluster.world.run(&forbidden).error(1).0, "forbidden");

    // The owner needs neither key nor certificate, and revokes the key.
    assert_eq!(cluster.run(&["status"]).json()["status"], "ok");
    let id = made["id"].as_str().expect("a name");
    assert_eq!(cluster.run(&["keys", "revoke", id]).json()["revoked"], true);
    assert_eq!(status(&trusted).error(1).0, "unauthorized");
    assert_eq!(cluster.run(&["keys", "ls"]).json(), json!([]));
    let log = std::fs::read_to_string(cluster.world.path("data/audit.refused.log")).expect("a log");
    let last: Value = serde_json::from_str(log.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["status"], &last["key"]), (&json!(401), &json!("-")), "{log}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_certificate_from_files_is_shown() {
    let world = World::new();
    let pki = Pki::generate().expect("random numbers");
    let made = pki.issue_server(&["localhost".to_owned()], Duration::from_secs(3600));
    let made = made.expect("a good name");
    let path = |name: &str, text: &str| world.write(name, text).display().to_string();
    let files = format!("{},{}", path("cert.pem", &made.chain_pem), path("key.pem", &made.key_pem));
    let (ca, other) = (path("ca.pem", pki.ca_pem()), Pki::generate().expect("random numbers"));
    let other = path("other.pem", other.ca_pem());
    let cluster = Cluster::start_with(world, &["--workers", "1", "--tls", &files]);
    let url = cluster.endpoint["http"].as_str().expect("an address");
    let url = url.replace("127.0.0.1", "localhost");
    let key = cluster.key_file();
    let stats = |ca: &str| {
        let asked = ["stats", "--json", "--server", &url, "--key-file", &key, "--ca", ca];
        cluster.world.run(&asked)
    };
    assert_eq!(stats(&ca).json()["workers"]["ready"], 1);
    assert_eq!(stats(&other).error(1).0, "unreachable", "nobody vouches for it");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}
