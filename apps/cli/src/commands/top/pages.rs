//! The pages of `top` as rows of text: a terminal shows one at a time, a pipe gets all at once.

use super::snapshot::Snapshot;
use crate::output::{self, array, bytes};
use crate::times::duration;
use serde_json::Value;

/// One page.
pub(super) struct Page {
    pub(super) name: &'static str,
    /// Headings, and the width of each column in characters; 0 takes the remaining width.
    pub(super) heads: &'static [(&'static str, u16)],
    pub(super) rows: Vec<Vec<String>>,
}

/// A page's definition: its name, its columns, and the function that makes its rows.
type Line = (&'static str, &'static [(&'static str, u16)], fn(&Snapshot) -> Vec<Vec<String>>);

/// The pages in the order of the tab key.
const PAGES: &[Line] = &[
    (
        "workers",
        &[
            ("id", 0),
            ("state", 8),
            ("device", 10),
            ("run", 4),
            ("queue", 5),
            ("load", 5),
            ("memory", 19),
            ("seen", 5),
        ],
        workers,
    ),
    (
        "devices",
        &[
            ("worker", 12),
            ("device", 10),
            ("name", 0),
            ("busy", 5),
            ("°C", 4),
            ("W", 4),
            ("memory", 19),
            ("run", 4),
        ],
        devices,
    ),
    (
        "models",
        &[
            ("model", 0),
            ("state", 11),
            ("workers", 8),
            ("queued", 7),
            ("ms of all", 9),
            ("p50", 8),
            ("p95", 8),
        ],
        models,
    ),
    (
        "tasks",
        &[
            ("task", 20),
            ("model", 0),
            ("state", 10),
            ("worker", 14),
            ("queued ms", 9),
            ("model ms", 9),
        ],
        tasks,
    ),
    ("log", &[("at", 8), ("level", 5), ("line", 0)], log),
];

/// The number of pages.
pub(super) const COUNT: usize = PAGES.len();

/// The pages of a snapshot.
pub(super) fn pages(snapshot: &Snapshot) -> Vec<Page> {
    PAGES.iter().map(|(name, heads, rows)| Page { name, heads, rows: rows(snapshot) }).collect()
}

/// The cluster's identity and state.
pub(super) fn head(snapshot: &Snapshot) -> [String; 2] {
    let counts = |value: &Value, names: &[&str]| {
        let one = |name: &&str| format!("{} {name}", output::cell(&value[*name]));
        names.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let Snapshot { server, coordinator, health, stats, .. } = snapshot;
    let uptime = stats["uptime_s"].as_f64().unwrap_or(0.0).max(0.0);
    [
        format!(
            "radeon-cluster {}  {}  {}  up {}",
            output::cell(&coordinator["version"]),
            output::plain(server),
            output::cell(&health["status"]),
            // Its whole seconds.
            duration(std::time::Duration::from_secs_f64(uptime.min(1e9)).as_secs()),
        ),
        format!(
            "workers {}   tasks {}",
            counts(&stats["workers"], &["ready", "draining", "lost"]),
            counts(&stats["tasks"], &["queued", "running", "succeeded", "failed"]),
        ),
    ]
}

/// Latency of the tasks that succeeded.
pub(super) fn latency(snapshot: &Snapshot) -> String {
    let of = |name: &str| snapshot.stats["latency_ms"][name].as_f64().unwrap_or(0.0);
    format!("p50 {:.1}  p95 {:.1}  p99 {:.1} ms", of("p50"), of("p95"), of("p99"))
}

/// Tasks that ended each second, of late.
pub(super) fn throughput(snapshot: &Snapshot) -> String {
    // An empty sum is −0.
    format!("{:.1} tasks a second", snapshot.stats["tasks_per_s"].as_f64().unwrap_or(0.0).abs())
}

/// All pages as text, for a pipe.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let head = head(snapshot).join("\n");
    let mut text = format!("{head}\n{}   {}\n", throughput(snapshot), latency(snapshot));
    for page in pages(snapshot) {
        let heads: Vec<&str> = page.heads.iter().map(|(name, _)| *name).collect();
        text += &format!("\n{}\n", page.name);
        match page.rows.is_empty() {
            true => text += "none\n",
            false => text += &output::table_of(&heads, page.rows),
        }
    }
    text
}

/// Used and total bytes: `1.0 GiB of 8.0 GiB`.
fn memory(used: &Value, total: &Value) -> String {
    match (used.as_u64(), total.as_u64()) {
        (Some(used), Some(total)) => format!("{} of {}", bytes(used), bytes(total)),
        (Some(used), None) => bytes(used),
        _ => "-".to_owned(),
    }
}

/// A number without its fraction, or a dash.
fn rounded(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

/// A share as a percentage, or a dash.
fn share(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{:.0} %", value * 100.0))
}

fn workers(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let row = |worker: &Value| {
        let [id, state, device, running, queued] =
            ["id", "state", "device", "running", "queued"].map(|key| output::cell(&worker[key]));
        let seen = worker["last_seen_ms"].as_u64().unwrap_or(0) / 1000;
        let memory = memory(&worker["vram_used_bytes"], &worker["vram_total_bytes"]);
        vec![id, state, device, running, queued, share(&worker["load"]), memory, duration(seen)]
    };
    snapshot.workers.iter().map(row).collect()
}

/// Each device with its sensors' values where known, and the cards that are not used.
fn devices(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let used = |id: &str, device: &Value| {
        let name = match device["taken_out"].as_str() {
            Some(why) => format!("takes no tasks: {}", output::plain(why)),
            None => output::cell(&device["name"]),
        };
        vec![
            id.to_owned(),
            output::cell(&device["device"]),
            name,
            share(&device["utilisation"]),
            rounded(&device["temperature_c"]),
            rounded(&device["power_w"]),
            memory(&device["vram_used_bytes"], &device["vram_total_bytes"]),
            output::cell(&device["running"]),
        ]
    };
    let unused = |id: &str, card: &Value| {
        let [card_id, name, reason] = ["id", "name", "reason"].map(|key| output::cell(&card[key]));
        let mut row = vec![id.to_owned(), card_id, format!("{name}: not used: {reason}")];
        row.resize(8, "-".to_owned());
        row
    };
    let mut rows = Vec::new();
    for worker in &snapshot.workers {
        let id = output::cell(&worker["id"]);
        rows.extend(array(&worker["devices"]).iter().map(|device| used(&id, device)));
        rows.extend(array(&worker["unused"]).iter().map(|card| unused(&id, card)));
    }
    rows
}

/// Each model with its queue, beside the parts of tasks' latency.
fn models(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let queued = &snapshot.stats["queued_by_model"];
    let name = |model: &Value| {
        format!("{}/{}", output::cell(&model["name"]), output::cell(&model["version"]))
    };
    let row = |model: &Value| {
        let name = name(model);
        let waiting = queued[&name].as_u64().unwrap_or(0).to_string();
        let workers = array(&model["workers"]).len().to_string();
        vec![name, output::cell(&model["state"]), workers, waiting]
    };
    let mut rows: Vec<Vec<String>> = snapshot.models.iter().map(row).collect();
    let is_known = |wanted: &str| snapshot.models.iter().any(|model| name(model) == wanted);
    for (model, waiting) in queued.as_object().into_iter().flatten() {
        if !is_known(model) {
            let dash = || "-".to_owned();
            rows.push(vec![
                output::plain(model).into_owned(),
                dash(),
                dash(),
                output::cell(waiting),
            ]);
        }
    }
    let kinds = ["latency_ms", "queued_ms", "model_ms", "overhead_ms"];
    let mut times = kinds.iter().map(|kind| {
        let ms = |name: &str| format!("{:.2}", snapshot.stats[*kind][name].as_f64().unwrap_or(0.0));
        [kind.trim_end_matches("_ms").to_owned(), ms("p50"), ms("p95")]
    });
    rows.resize_with(rows.len().max(kinds.len()), || vec![String::new(); 4]);
    for row in &mut rows {
        row.extend(times.next().unwrap_or_default());
    }
    rows
}

fn tasks(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let row = |task: &Value| {
        let [id, model, state, worker] =
            ["task_id", "model", "state", "worker"].map(|key| output::cell(&task[key]));
        let ms = |key: &str| {
            task[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        vec![id, model, state, worker, ms("queued_ms"), ms("model_ms")]
    };
    snapshot.tasks.iter().map(row).collect()
}

fn log(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let row = |line: &Value| {
        // The time of day is enough: 2026-01-02T03:04:05.678901Z.
        let at = line["at"].as_str().and_then(|at| at.get(11..19)).unwrap_or("-");
        let [level, text] = ["level", "text"].map(|key| output::cell(&line[key]));
        vec![output::plain(at).into_owned(), level, text]
    };
    snapshot.logs.iter().rev().map(row).collect()
}
