//! Limits of the server, with their defaults.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Limits of the server. Addresses are the caller's business: [`serve`](crate::serve) takes a
/// bound listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    /// Whether programs of this machine may ask for health, metadata and inference without a key.
    pub open: bool,
    /// Origins of pages that may use the server besides its own, as browsers name them:
    /// `https://example.org:8080`.
    pub origins: Vec<String>,
    /// Largest request body in bytes; larger ones are refused with 413.
    pub body_bytes_max: usize,
    /// The same for bodies with tensors as binary data behind their JSON, which itself may have
    /// `body_bytes_max`.
    pub binary_bytes_max: usize,
    /// Bytes of all request bodies that are held at once, they or their tensors; others wait. A body that is
    /// larger than seven eighths of it is refused with 413, whatever the limits above say.
    pub bodies_bytes_max: usize,
    /// Bytes of a body that must come in a second, all of it taken together.
    pub body_bytes_per_s_min: usize,
    /// Time that every body has besides that, in milliseconds.
    pub body_grace_ms: u64,
    /// Largest model upload in bytes; uploads go to disk, not to memory.
    pub model_bytes_max: u64,
    /// Most tasks in one batch.
    pub batch_tasks_max: usize,
    /// Longest deadline that a request may ask for, and the one it gets when it asks for none,
    /// in milliseconds.
    pub deadline_ms_max: u64,
    /// Time in which a request's headers must arrive, in milliseconds.
    pub header_timeout_ms: u64,
    /// Time in which something more of a request's body must arrive, in milliseconds. A body waits
    /// as long for its room.
    pub body_timeout_ms: u64,
    /// Time that open requests get to finish once the server shuts down, in milliseconds.
    pub drain_timeout_ms: u64,
    /// Connections that are open at the same time; more wait to be accepted.
    pub connections_max: usize,
    /// Callers that listen to events at the same time; more are refused with 503.
    pub listeners_max: usize,
    /// Events that are kept for listeners that come back after a break.
    pub events_kept_max: usize,
    /// Callers that wait for the end of a task with `wait_ms` at the same time; more are refused
    /// with 503.
    pub waiters_max: usize,
    /// Inferences of one model that are under way at the same time, waiting or running; more are refused
    /// with 503, so that those that are taken wait no longer than so many need.
    pub pending_max: u64,
    /// Sequences of one version of a model that are open at the same time; more are refused with 503.
    pub sequences_max: u64,
    /// Bytes of the states of all sequences; what needs more is refused with 503.
    pub sequences_bytes_max: usize,
    /// How often the folder of models is looked at for what came or went by hand, in milliseconds; 0 is
    /// never.
    pub models_poll_ms: u64,
    /// Time after which Frigate's detector is answered without a result, in milliseconds. The detector
    /// waits for 200 ms unless it is told otherwise, and connects anew then.
    pub frigate_timeout_ms: u64,
    /// Where traces go: the base URL of a collector that speaks OTLP over HTTP, as in
    /// `http://127.0.0.1:4318`. Without one they go nowhere.
    pub otlp_endpoint: Option<String>,
    /// The share of traces that are kept, 0 to 1, of requests that do not come with one.
    pub otlp_ratio: f64,
    /// Whether traces tell of the nodes of runs, of one a second of each model at most. On a device a run takes
    /// longer by that.
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

    /// What one request is given of the room for bodies besides its own body: five eighths, so that others
    /// can hold the bodies that they come with.
    pub(crate) fn room_of_one(&self) -> usize {
        self.bodies_bytes_max / 8 * 5
    }

    /// The same limits, with which no body is larger than the room for all of them: an eighth of that is for the
    /// first bytes of each.
    pub(crate) fn within_room(self) -> Self {
        let most = self.bodies_bytes_max - self.bodies_bytes_max / 8;
        let (body, binary) = (self.body_bytes_max.min(most), self.binary_bytes_max.min(most));
        Self { body_bytes_max: body, binary_bytes_max: binary, ..self }
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }
}
