//! The parts of a report. An unavailable part is replaced by the reason, and does not affect
//! others.

use crate::commands::doctor;
use crate::failure::Result;
use crate::folder;
use crate::rest::{Client, Target};
use crate::settings::{self, Flags};
use crate::system::System;
use lgp_sdk::device::ProbeOptions;
use lgp_server::{LogFilter, LogLevel, read_logs};
use serde_json::{Map, Value, json};
use std::time::SystemTime;

/// The number of log lines in a report.
const LINES: usize = 300;

/// A part of a cluster, and the request for it.
type Part = (&'static str, fn(&Client) -> Result<Value>);

/// One line for each part of a cluster.
const CLUSTER: &[Part] = &[
    ("coordinator", |client| client.post("coordinator/start", &json!({}))),
    ("health", |client| client.get_any("health")),
    ("stats", |client| client.get("stats")),
    ("workers", |client| client.get("workers")),
    ("models", |client| client.get("models")),
    ("failed_tasks", |client| client.get("tasks?state=failed&limit=20")),
    ("config", |client| client.get("config")),
    ("journal", |client| client.get("journal")),
];

/// The whole report, before secrets are removed.
pub(super) fn report(target: &Target) -> Value {
    let mut report = Map::new();
    report.insert(
        "program".to_owned(),
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "at": httpdate::fmt_http_date(SystemTime::now()),
        }),
    );
    report.insert("system".to_owned(), json!(System::read()));
    report.insert("findings".to_owned(), json!(doctor::findings(target)));
    report.insert("devices".to_owned(), json!(lgp_sdk::device::probe(&ProbeOptions::default())));
    report.insert("environment".to_owned(), environment());
    report.insert("settings".to_owned(), part(settings(target)));
    let cluster = target.connect().map(|client| {
        let parts = CLUSTER.iter().map(|(name, ask)| ((*name).to_owned(), part(ask(&client))));
        Value::Object(parts.collect())
    });
    report.insert("cluster".to_owned(), part(cluster));
    report.insert("logs".to_owned(), part(logs(target)));
    Value::Object(report)
}

/// The part, or why it is unavailable.
fn part(given: Result<Value>) -> Value {
    given.unwrap_or_else(|failure| json!({ "unavailable": failure.message, "code": failure.code }))
}

/// The variables that drivers and this program heed.
fn environment() -> Value {
    const BEGINNINGS: [&str; 14] = [
        "RADEON_",
        "RUSTICL_",
        "OCL_",
        "POCL_",
        "ROC_",
        "HSA_",
        "MESA_",
        "RADV_",
        "AMD_",
        "VK_",
        "CUDA_",
        "NVIDIA_",
        "RUST_LOG",
        "RUST_BACKTRACE",
    ];
    let named = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_wanted = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        is_wanted.then(|| (name, json!(value.to_string_lossy())))
    });
    Value::Object(named.collect())
}

fn settings(target: &Target) -> Result<Value> {
    let flags = Flags {
        data: target.data.as_deref(),
        config: target.config.as_deref(),
        ..Flags::default()
    };
    let settings = settings::resolve(&flags, settings::environment)?;
    serde_json::to_value(&settings).map_err(crate::failure::Failure::internal)
}

/// The last log lines; without a coordinator they come from the files in the data folder.
fn logs(target: &Target) -> Result<Value> {
    if target.is_server() {
        return target.connect()?.get(&format!("logs?level=debug&limit={LINES}"));
    }
    let paths = folder::logs(&target.data_folder()?);
    let filter =
        LogFilter { level: LogLevel::Debug, contains: String::new(), after: None, limit: LINES };
    let lines = read_logs(&paths, &filter);
    let lines =
        lines.map_err(|error| crate::failure::Failure::from_error("logs_unreadable", &error))?;
    Ok(json!(lines))
}
