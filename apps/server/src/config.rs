//! Limits of the server, with their defaults.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Limits of the server. Addresses are not among them: [`serve`](crate::serve) takes a bound listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    /// Whether programs on this machine may use health, metadata and inference without a key.
    pub open: bool,
    /// Origins of other pages that may use the server, as browsers name them: `https://example.org:8080`.
    pub origins: Vec<String>,
    /// Largest request body in bytes; larger ones are refused with 413.
    pub body_bytes_max: usize,
    /// As `body_bytes_max`, for bodies with tensors as binary data after their JSON; the JSON itself is limited by
    /// `body_bytes_max`.
    pub binary_bytes_max: usize,
    /// Bytes of all request bodies, or their tensors, that are in memory at once; more bodies wait. A body above
    /// seven eighths of this is refused with 413, independent of the limits above.
    pub bodies_bytes_max: usize,
    /// The least average rate of a body, in bytes a second.
    pub body_bytes_per_s_min: usize,
    /// Extra time for every body besides that, in milliseconds.
    pub body_grace_ms: u64,
    /// Largest model upload in bytes; uploads go to disk, not to memory.
    pub model_bytes_max: u64,
    /// The most tasks in one batch.
    pub batch_tasks_max: usize,
    /// The longest deadline that a request may ask for, and the default, in milliseconds.
    pub deadline_ms_max: u64,
    /// Time limit for a request's headers, in milliseconds.
    pub header_timeout_ms: u64,
    /// Longest pause between two parts of a request's body, and longest wait of a body for its room, in milliseconds.
    pub body_timeout_ms: u64,
    /// Time for open requests to finish during a shutdown, in milliseconds.
    pub drain_timeout_ms: u64,
    /// The most open connections; more wait to be accepted.
    pub connections_max: usize,
    /// The most concurrent listeners to events; more are refused with 503.
    pub listeners_max: usize,
    /// Events that are kept for listeners that reconnect.
    pub events_kept_max: usize,
    /// The most concurrent callers that wait for the end of a task with `wait_ms`; more are refused with 503.
    pub waiters_max: usize,
    /// The most inferences of one model that wait or run at the same time. More are refused with 503, which bounds
    /// the wait of the others.
    pub pending_max: u64,
    /// The most open sequences of one version of a model; more are refused with 503.
    pub sequences_max: u64,
    /// The most bytes of the states of all sequences; requests that need more are refused with 503.
    pub sequences_bytes_max: usize,
    /// How often the folder of models is checked for manual changes, in milliseconds; 0 is never.
    pub models_poll_ms: u64,
    /// Time after which Frigate's detector gets an empty answer, in milliseconds. By default the detector waits for
    /// 200 ms, then reconnects.
    pub frigate_timeout_ms: u64,
    /// The base URL of a collector that speaks OTLP over HTTP, such as `http://127.0.0.1:4318`. Without one, no
    /// traces are sent.
    pub otlp_endpoint: Option<String>,
    /// The share of traces that are sampled, 0 to 1, for requests that bring no trace of their own.
    pub otlp_ratio: f64,
    /// Whether traces include the nodes of runs, of at most one run a second of each model. On a device this slows
    /// the run.
    pub otlp_nodes: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            open: true,
            origins: Vec::new(),
            body_bytes_max: 64 << 20,
            binary_bytes_max: 1 << 30,
            bodies_bytes_max: 512 << 20,
            body_bytes_per_s_min: 16 << 10,
            body_grace_ms: 10_000,
            model_bytes_max: 4 << 30,
            batch_tasks_max: 10_000,
            deadline_ms_max: 3_600_000,
            header_timeout_ms: 10_000,
            body_timeout_ms: 60_000,
            drain_timeout_ms: 30_000,
            connections_max: 1_024,
            listeners_max: 256,
            events_kept_max: 1_024,
            waiters_max: 256,
            pending_max: 512,
            sequences_max: 1_024,
            sequences_bytes_max: 256 << 20,
            models_poll_ms: 5_000,
            frigate_timeout_ms: 180,
            otlp_endpoint: None,
            otlp_ratio: 1.0,
            otlp_nodes: true,
        }
    }
}

impl ServerConfig {
    pub(crate) fn deadline_max(&self) -> Duration {
        Duration::from_millis(self.deadline_ms_max)
    }

    /// The room for bodies that one request may take besides its own body: five eighths, so that other bodies still
    /// find room.
    pub(crate) fn room_of_one(&self) -> usize {
        self.bodies_bytes_max / 8 * 5
    }

    /// Lowers the limits such that no single body exceeds the room for all bodies. An eighth of the room is reserved
    /// for the first bytes of each body.
    pub(crate) fn within_room(self) -> Self {
        let most = self.bodies_bytes_max - self.bodies_bytes_max / 8;
        let (body, binary) = (self.body_bytes_max.min(most), self.binary_bytes_max.min(most));
        Self { body_bytes_max: body, binary_bytes_max: binary, ..self }
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }
}
