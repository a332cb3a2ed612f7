//! The state of a cluster at one moment.

use crate::failure::Result;
use crate::rest::Client;
use serde::Serialize;
use serde_json::{Value, json};

/// The latest tasks and lines of the log that are shown.
const LATEST: usize = 100;

/// All shown values, as the cluster API gives them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Snapshot {
    /// The coordinator's address.
    pub(super) server: String,
    pub(super) coordinator: Value,
    pub(super) health: Value,
    pub(super) stats: Value,
    /// The recent totals, in columns.
    pub(super) history: Value,
    pub(super) workers: Vec<Value>,
    pub(super) models: Vec<Value>,
    pub(super) tasks: Vec<Value>,
    /// Lines of the log; none with a key that may not read it.
    pub(super) logs: Vec<Value>,
}

impl Snapshot {
    /// Takes a snapshot of a coordinator's cluster.
    ///
    /// # Errors
    /// Those of the requests; `unauthorized` and similar with a key that may not view the cluster.
    pub(super) fn take(client: &Client) -> Result<Self> {
        Ok(Self {
            server: client.base().to_owned(),
            coordinator: client.post("coordinator/start", &json!({}))?,
            health: client.get_any("health")?,
            stats: client.get("stats")?,
            history: client.get("stats/history")?,
            workers: client.get("workers")?,
            models: client.get("models")?,
            tasks: client.get(&format!("tasks?limit={LATEST}"))?,
            logs: client.get(&format!("logs?level=info&limit={LATEST}")).unwrap_or_default(),
        })
    }

    /// The latest numbers of a column of the history, at most `most`; gaps are 0.
    pub(super) fn column(&self, path: &str, most: usize) -> Vec<f64> {
        let column = self.history.pointer(path).and_then(Value::as_array);
        let column = column.map_or(&[][..], Vec::as_slice);
        let latest = &column[column.len().saturating_sub(most)..];
        latest.iter().map(|value| value.as_f64().unwrap_or(0.0).max(0.0)).collect()
    }
}
