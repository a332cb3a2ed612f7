//! The doctor's checks of a cluster: facts are fetched once, and each check is a function of them.

mod certificates;
mod clock;
mod devices;
mod disk;
mod keys;
mod models;
mod port;
mod queue;
mod workers;

use crate::failure::Result;
use crate::rest::{Client, Target};
use crate::settings::{self, Flags};
use lgp_hal::{Finding, Status as FindingStatus};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The facts for all checks. Missing facts are null, empty or `None`.
#[derive(Debug, Default)]
struct Facts {
    /// The coordinator's address.
    server: String,
    /// The coordinator's data folder, if it is on this machine.
    data: Option<PathBuf>,
    coordinator: Value,
    stats: Value,
    workers: Vec<Value>,
    models: Vec<Value>,
    /// The newest queued tasks.
    waiting: Vec<Value>,
    keys: Vec<Value>,
    journal: Value,
    /// The coordinator's clock, between the moments before and after the request.
    clock: Option<(SystemTime, SystemTime, SystemTime)>,
    now: Option<SystemTime>,
}

/// One line for each check.
const CHECKS: &[fn(&Facts) -> Vec<Finding>] = &[
    workers::check,
    devices::check,
    models::check,
    queue::check,
    keys::check,
    disk::check,
    clock::check,
    port::check,
];

/// Checks the target's cluster, if one runs, and this machine's settings and certificates.
pub(super) fn check(target: &Target) -> Vec<Finding> {
    let flags = Flags {
        data: target.data.as_deref(),
        config: target.config.as_deref(),
        ..Flags::default()
    };
    let settings = settings::resolve(&flags, settings::environment);
    let mut all = Vec::new();
    if let Err(failure) = &settings {
        let finding = Finding::new("settings", FindingStatus::Fail, &failure.message);
        all.push(Finding { fix: failure.hint.clone(), ..finding });
    }
    let now = SystemTime::now();
    all.extend(settings.iter().flat_map(|settings| certificates::check(settings, now)));
    let facts = match target.connect().and_then(|client| Facts::gather(&client)) {
        Ok(facts) => facts,
        Err(failure) => {
            let is_none = failure.code == "not_running" && !target.is_server();
            let status = if is_none { FindingStatus::Info } else { FindingStatus::Fail };
            let finding = Finding::new("cluster", status, failure.message);
            all.push(Finding { fix: failure.hint, ..finding });
            return all;
        }
    };
    let found: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&facts)).collect();
    let is_well = found.iter().all(|finding| finding.status <= FindingStatus::Info);
    let (version, server) = (facts.coordinator["version"].as_str().unwrap_or("?"), &facts.server);
    let message = match is_well {
        true => format!("version {version} at {server}: nothing to complain of"),
        false => format!("version {version} at {server}: see below"),
    };
    all.push(Finding::new("cluster", FindingStatus::Ok, message));
    all.extend(found);
    all
}

impl Facts {
    /// Fetches the facts from a coordinator. Facts for administrators are left out with another key.
    fn gather(client: &Client) -> Result<Self> {
        let before = SystemTime::now();
        let told = client.clock()?;
        let clock = told.map(|told| (before, told, SystemTime::now()));
        Ok(Self {
            server: client.base().to_owned(),
            data: client.data().map(std::path::Path::to_owned),
            coordinator: client.post("coordinator/start", &json!({}))?,
            stats: client.get("stats")?,
            workers: client.get("workers")?,
            models: client.get("models")?,
            waiting: client.get("tasks?state=queued&limit=1000")?,
            keys: client.get("keys").unwrap_or_default(),
            journal: client.get("journal").unwrap_or_default(),
            clock,
            now: Some(SystemTime::now()),
        })
    }
}

/// The text of a field, empty where there is none.
fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A duration for people.
fn long(time: Duration) -> String {
    crate::times::duration(time.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::text;

    /// A cluster that fails every check at once.
    fn sick() -> Facts {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let device = json!({ "device": "opencl:0", "taken_out": "3 runs on it did not stop",
            "temperature_c": 96.0 });
        Facts {
            server: "http://127.0.0.1:8000".to_owned(),
            coordinator: json!({ "version": "0.0.9", "quic": "127.0.0.1:8443" }),
            stats: json!({ "workers": { "ready": 0, "draining": 1, "lost": 1 },
                "tasks": { "queued": 3 } }),
            workers: vec![
                json!({ "id": "far", "state": "draining", "version": "0.0.8", "last_seen_ms": 20,
                    "devices": [device], "hangs": 3,
                    "breakers": { "digits/1": "open" },
                    "unused": [{ "id": "pci:0000:02:00.0", "name": "AMD Radeon RX 570",
                        "reason": "rusticl is off", "hint": "export RUSTICL_ENABLE=radeonsi" }] }),
                json!({ "id": "gone", "state": "lost", "last_seen_ms": 90_000, "devices": [] }),
            ],
            models: vec![json!({ "name": "big", "version": 2, "state": "unavailable",
                "reason": "its file is damaged" })],
            waiting: vec![
                json!({ "task_id": "1-1", "model": "digits/1", "queued_ms": 125_000.0 }),
                json!({ "task_id": "1-2", "model": "digits/1", "queued_ms": 5.0 }),
            ],
            keys: vec![
                json!({ "id": "soon", "expires_s": 1_000_000 + 3600 }),
                json!({ "id": "over", "expires_s": 999_000 }),
                json!({ "id": "never", "expires_s": null }),
            ],
            journal: json!({ "bytes": 3u64 << 30 }),
            clock: Some((now, now + Duration::from_secs(400), now)),
            now: Some(now),
            ..Facts::default()
        }
    }

    fn well() -> Facts {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let version = env!("CARGO_PKG_VERSION");
        Facts {
            server: "http://127.0.0.1:8000".to_owned(),
            coordinator: json!({ "version": version, "quic": "127.0.0.1:8443" }),
            stats: json!({ "workers": { "ready": 1, "draining": 0, "lost": 0 } }),
            workers: vec![json!({ "id": "near", "state": "ready", "last_seen_ms": 100,
                "version": version, "devices": [{ "device": "cpu:0", "taken_out": null }] })],
            models: vec![json!({ "name": "digits", "version": 1, "state": "ready" })],
            waiting: vec![json!({ "task_id": "1-2", "model": "digits/1", "queued_ms": 5.0 })],
            journal: json!({ "bytes": 1 << 20 }),
            clock: Some((now, now, now)),
            now: Some(now),
            ..Facts::default()
        }
    }

    /// The findings of all checks but that of the port, which uses the network.
    fn say(facts: &Facts) -> Vec<Finding> {
        let offline = CHECKS.iter().filter(|check| {
            !std::ptr::fn_addr_eq(**check, port::check as fn(&Facts) -> Vec<Finding>)
        });
        offline.flat_map(|check| check(facts)).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_named_with_what_to_do() {
        insta::assert_snapshot!(text(&say(&sick())));
    }

    #[test]
    fn a_healthy_cluster_is_left_in_peace() {
        assert_eq!(say(&well()), []);
    }

    #[test]
    fn little_is_known_of_an_older_coordinator() {
        // It lacks later fields, and no check complains of that.
        let facts = Facts { stats: json!({ "workers": { "ready": 1 } }), ..Facts::default() };
        assert_eq!(say(&facts), []);
    }
}
