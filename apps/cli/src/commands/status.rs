//! `status`: whether a coordinator runs, and its state.

use crate::commands::workers;
use crate::failure::Result;
use crate::folder;
use crate::output::{self, Output};
use crate::rest::{Client, Target};
use crate::times::duration;
use serde_json::{Value, json};
use std::time::Duration;

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster status --detailed")]
pub(crate) struct Args {
    /// Also show workers, latencies and settings
    #[arg(long)]
    detailed: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let mut report = summary(&client)?;
    let workers: Vec<Value> = client.get("workers")?;
    report["taken_out"] = json!(workers::taken_out(&workers));
    if args.detailed {
        report["worker_list"] = json!(workers);
        report["config"] = client.get("config")?;
    } else if let Some(stats) = report["stats"].as_object_mut() {
        stats.retain(|key, _| ["tasks", "tasks_per_s", "retries"].contains(&key.as_str()));
    }
    out.emit(&report, |report| text(report, args.detailed))
}

fn summary(client: &Client) -> Result<Value> {
    let coordinator: Value = client.post("coordinator/start", &json!({}))?;
    let stats: Value = client.get("stats")?;
    let health = client.get_any("health")?;
    let models: Vec<Value> = client.get("models")?;
    let models: Vec<Value> = models
        .iter()
        .map(|m| json!({ "name": m["name"], "version": m["version"], "state": m["state"] }))
        .collect();
    // A coordinator found only by its address does not tell which other interfaces it serves.
    let endpoint = client.data().and_then(|data| folder::running(data).ok());
    Ok(json!({
        "status": health["status"],
        "pid": coordinator["pid"],
        "http": client.base(),
        "grpc": endpoint.as_ref().and_then(|endpoint| endpoint.grpc.as_ref()),
        "frigate": endpoint.as_ref().and_then(|endpoint| endpoint.frigate.as_ref()),
        "immich": endpoint.as_ref().and_then(|endpoint| endpoint.immich.as_ref()),
        "quic": coordinator["quic"],
        "data": client.data(),
        "version": coordinator["version"],
        "control": coordinator["control"],
        "uptime_s": coordinator["uptime_s"],
        "workers": coordinator["workers"],
        "models": models,
        "stats": stats,
    }))
}

fn text(report: &Value, detailed: bool) -> String {
    let cell = |value: &Value| output::cell(value);
    let counts = |value: &Value, states: &[&str]| {
        let count = |state: &&str| format!("{} {state}", cell(&value[*state]));
        states.iter().map(count).collect::<Vec<_>>().join(", ")
    };
    let models = output::array(&report["models"]);
    let models: Vec<String> = models
        .iter()
        .map(|m| format!("{}/{} ({})", cell(&m["name"]), cell(&m["version"]), cell(&m["state"])))
        .collect();
    let models = if models.is_empty() { "none".to_owned() } else { models.join(", ") };
    let up = Duration::from_secs_f64(report["uptime_s"].as_f64().unwrap_or(0.0).clamp(1.0, 1e9));
    let stats = &report["stats"];
    let out = output::array(&report["taken_out"]);
    let mut text = format!(
        "coordinator {} at {}: {}, up {}\n\
         workers  {}\n\
         tasks    {}; {:.1} a second, attempts repeated: {}\n\
         models   {}\n",
        cell(&report["pid"]),
        cell(&report["http"]),
        cell(&report["status"]),
        duration(up.as_secs()),
        counts(&report["workers"], &["ready", "draining", "away", "lost"]),
        counts(&stats["tasks"], &["queued", "running", "succeeded", "failed", "cancelled"]),
        // An empty sum is −0.
        stats["tasks_per_s"].as_f64().unwrap_or(0.0).abs(),
        cell(&stats["retries"]),
        models,
    );
    text += &control(&report["control"]);
    if !detailed {
        text.extend(out.iter().map(workers::out_line));
    } else {
        let list = output::array(&report["worker_list"]);
        let rows = ["latency_ms", "queued_ms", "model_ms", "overhead_ms"].map(|kind| {
            let [p50, p95, p99] = ["p50", "p95", "p99"]
                .map(|key| format!("{:.2}", stats[kind][key].as_f64().unwrap_or(0.0)));
            [kind.trim_end_matches("_ms").to_owned(), p50, p95, p99]
        });
        text += &format!(
            "quic     {}\ndata     {}\nbalance  {}\n\n{}\n{}",
            cell(&report["quic"]),
            cell(&report["data"]),
            cell(&stats["balancing"]),
            output::table(["ms", "p50", "p95", "p99"], rows),
            workers::text(list),
        );
    }
    text
}

/// The leader, where there can be several coordinators.
fn control(control: &Value) -> String {
    if control.is_null() {
        return String::new();
    }
    let cell = |value: &Value| output::cell(value);
    let mut text = format!("control  {}\n", cell(&control["engine"]));
    let coordinators = output::array(&control["coordinators"]);
    for one in coordinators {
        let role = if one["leads"] == true { "leads" } else { "follows" };
        let own = if one["number"] == control["number"] { ", this one" } else { "" };
        let at = if one["url"].is_null() { &one["quic"] } else { &one["url"] };
        text += &format!("         {} {role}{own}\n", cell(at));
    }
    if let Some(trouble) = control["trouble"].as_str() {
        text += &format!(
            "         {trouble}\n         what runs goes on; until it answers nobody joins, and no \
             other coordinator comes to lead\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_is_told_where_there_are_several() {
        assert_eq!(control(&Value::Null), "");
        let shown = control(&json!({
            "engine": "PostgreSQL 15.14",
            "number": 7,
            "trouble": "it does not answer",
            "coordinators": [
                { "number": 5, "leads": true, "quic": "10.0.0.1:8443", "url": "https://10.0.0.1:8000" },
                { "number": 7, "leads": false, "quic": "10.0.0.2:8443", "url": null },
            ],
        }));
        assert!(shown.starts_with("control  PostgreSQL 15.14\n"), "{shown}");
        assert!(shown.contains("https://10.0.0.1:8000 leads\n"), "{shown}");
        assert!(shown.contains("10.0.0.2:8443 follows, this one\n"), "{shown}");
        assert!(shown.contains("it does not answer"), "{shown}");
    }

    #[test]
    fn a_long_time_is_told_in_large_units_and_no_model_as_none() {
        let text = text(&json!({ "uptime_s": 90_061.123_456_789, "models": [] }), false);
        assert!(text.contains("up 1d\n") && text.contains("models   none\n"), "{text}");
    }

    #[test]
    fn a_device_that_was_taken_out_is_told_once() {
        let device = json!({ "device": "cpu", "taken_out": "3 runs on it did not stop" });
        let workers = [json!({ "id": "far", "state": "ready", "devices": [device] })];
        let out = workers::taken_out(&workers);
        let report = json!({ "taken_out": out, "worker_list": workers });
        for detailed in [false, true] {
            let text = text(&report, detailed);
            assert_eq!(text.matches("radeon-cluster workers enable far").count(), 1, "{text}");
        }
    }
}
