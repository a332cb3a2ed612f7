//! A report of a running cluster's performance, as one self-contained page.

mod metrics;
mod sections;

use crate::failure::{Failure, Result};
use crate::files::{self, Staged};
use crate::output::Output;
use crate::rest::{Client, segment};
use lgp_measure::report::Page;
use metrics::Metrics;
use serde_json::{Value, json};
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The number of evaluated tasks, the latest ones.
const TASKS: usize = 1_000;
/// The hint where the file exists.
const TAKEN: &str = "name another file, or replace it with --force";

/// A coordinator's answers.
struct Told {
    stats: Value,
    history: Value,
    workers: Vec<Value>,
    tasks: Vec<Value>,
    metrics: Metrics,
}

impl Told {
    fn ask(client: &Client) -> Result<Self> {
        let mut workers: Vec<Value> = client.get("workers")?;
        for worker in &mut workers {
            let id = worker["id"].as_str().unwrap_or_default();
            // A worker that has left meanwhile keeps the values of the list.
            let now = client.get::<Value>(&format!("workers/{}/metrics", segment(id)));
            if let (Ok(Value::Object(now)), Some(known)) = (now, worker.as_object_mut()) {
                known.extend(now);
            }
        }
        Ok(Self {
            stats: client.get("stats")?,
            history: client.get("stats/history")?,
            workers,
            tasks: client.get(&format!("tasks?limit={TASKS}"))?,
            metrics: Metrics::read(&client.metrics()?),
        })
    }
}

/// Writes the page to a file, which must not exist unless `force` is set.
///
/// # Errors
/// `file_exists`; when the coordinator does not answer, or the file cannot be written.
pub(super) fn write(client: &Client, path: &Path, force: bool, out: Output) -> Result<()> {
    if !force {
        files::vacant(path, TAKEN)?;
    }
    let told = Told::ask(client)?;
    let now = OffsetDateTime::now_utc().format(&Rfc3339).map_err(Failure::internal)?;
    let staged = Staged::new(path, page(&told, client.base(), &now).as_bytes())?;
    match force {
        true => staged.place()?,
        // A file that has appeared meanwhile is kept too.
        false => staged.place_new(TAKEN)?,
    }
    let value = json!({ "report": path, "workers": told.workers.len() });
    out.emit(&value, |_| format!("{} has the report\n", path.display()))
}

fn page(told: &Told, server: &str, now: &str) -> String {
    let uptime = told.stats["uptime_s"].as_f64();
    let uptime = uptime.map_or("an unknown time".to_owned(), |s| format!("{s:.0} s"));
    let words = format!(
        "{server} at {now}, {uptime} after its coordinator started, asked by radeon-cluster {}.",
        env!("CARGO_PKG_VERSION")
    );
    let page = Page::new("Performance of a cluster").words(&words);
    sections::ALL.iter().fold(page, |page, section| page.section(section(told))).finish()
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
