//! Workers and totals as callers see them.

use crate::error::Error;
use crate::executor::UnusedDevice;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// UDP payload to and from the connected workers, since each connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Traffic {
    pub sent_bytes: u64,
    pub sent_datagrams: u64,
    pub received_bytes: u64,
    pub received_datagrams: u64,
}

/// A worker's name, as its certificate states it: lowercase letters, digits and inner hyphens,
/// at most 63 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for WorkerId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let valid = (1..=63).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if valid {
            return Ok(Self(text.into()));
        }
        Err(Error::Parse {
            what: "worker name",
            given: text.chars().take(64).collect(),
            expected: "1 to 63 lowercase letters, digits and inner hyphens",
        })
    }
}

impl Serialize for WorkerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl TryFrom<String> for WorkerId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

/// Whether a worker takes tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Takes tasks.
    Ready,
    /// Finishes the tasks that it holds and takes no more.
    Draining,
    /// The connection is lost. The worker may come back with the tasks that it holds.
    Away,
    /// Gone; its tasks were given to other workers. It stays listed for a while so that people see
    /// it.
    Lost,
}

impl WorkerState {
    /// The name as it is written in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Away => "away",
            Self::Lost => "lost",
        }
    }
}

/// How the tensors of tasks travel between a worker and its coordinator; everything else goes over
/// QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Transport {
    /// Over QUIC.
    #[default]
    #[serde(rename = "quic")]
    Quic,
    /// In shared memory, when both run on the same machine.
    #[serde(rename = "shared memory")]
    SharedMemory,
}

/// A worker. The JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Name.
    pub id: WorkerId,
    /// Process id, where the worker runs on the coordinator's machine.
    pub pid: Option<u32>,
    /// Whether it takes tasks.
    pub state: WorkerState,
    /// The device it runs on, for example `cpu:0`.
    pub device: String,
    /// The device's backend.
    pub backend: String,
    /// Models that any of its devices has loaded, as `NAME/VERSION`.
    pub models: Vec<String>,
    /// Attempts that it holds.
    pub running: u32,
    /// Of those, attempts that no thread of the worker has taken yet.
    pub queued: u32,
    /// Device memory that it has taken.
    pub vram_used_bytes: Option<u64>,
    /// Device memory that it may take.
    pub vram_total_bytes: Option<u64>,
    /// Tasks that the worker may hold at once. Models with their own batching have places of their
    /// own, which count while the worker holds tasks of such models.
    pub slots: u32,
    /// Load from 0 to 1 by the formula of the least-loaded strategy, for its busiest device.
    pub load: f64,
    /// Tasks it has finished, with success or not.
    pub completed: u64,
    /// Milliseconds since its last message.
    pub last_seen_ms: u64,
    /// Models whose tasks the worker does not get for now because it failed at them too often, each
    /// with the state of its breaker.
    pub breakers: BTreeMap<String, Cow<'static, str>>,
    /// Runs on its devices that did not stop when asked to, including those of earlier processes. A
    /// day without such a run clears the count.
    pub hangs: u32,
    /// Its devices. The fields above describe the first one, or the sum of all.
    pub devices: Vec<DeviceInfo>,
    /// How large tensors travel between it and the coordinator.
    pub transport: Transport,
    /// The version of its program.
    pub version: String,
    /// Devices of its machine on which it runs nothing, each with the reason.
    pub unused: Vec<UnusedDevice>,
}

/// A device of a worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its id, for example `cpu:0`.
    pub device: String,
    /// Its name for people; empty where it has none.
    pub name: String,
    /// Its driver and the driver's version; empty where they are not known.
    pub driver: String,
    /// Its backend.
    pub backend: String,
    /// Loaded models as `NAME/VERSION`.
    pub models: Vec<String>,
    /// Attempts that it holds.
    pub running: u32,
    /// Of those, attempts that no thread of the worker has taken yet.
    pub queued: u32,
    /// Tasks that the device may hold at once. Models with their own batching have places of their
    /// own, which count while the device holds tasks of such models.
    pub slots: u32,
    /// Load from 0 to 1 by the formula of the least-loaded strategy.
    pub load: f64,
    /// Memory that it has taken.
    pub vram_used_bytes: Option<u64>,
    /// Memory that it may take.
    pub vram_total_bytes: Option<u64>,
    /// How busy it is, 0 to 1, where that can be read.
    pub utilisation: Option<f32>,
    /// The power that it draws in watts, where that can be read.
    pub power_w: Option<f32>,
    /// The temperature of its chip in degrees Celsius, where that can be read.
    pub temperature_c: Option<f32>,
    /// The energy in joules that the device has used since its worker connected. The coordinator
    /// integrates the power that heartbeats report. The field is not serialized: answers passed on
    /// by another coordinator lack it.
    #[serde(skip)]
    pub energy_j: Option<f64>,
    /// Runs on the device that did not stop when asked to.
    pub hangs: u32,
    /// The reason why it takes no tasks until a person puts it back into service, if so.
    pub taken_out: Option<String>,
    /// Mean service time of each model measured here, in milliseconds; recent tasks count most.
    pub service_ms: BTreeMap<String, f64>,
    /// Memory that each loaded model takes on the device, in bytes, where that is known.
    pub model_bytes: BTreeMap<String, u64>,
}

/// A hit rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hits {
    /// Lookups that succeeded.
    pub hits: u64,
    /// All lookups.
    pub of: u64,
}

/// Totals of a coordinator since it started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Tasks by state; the terminal ones count every task since the start.
    pub tasks: TaskCounts,
    /// Queued tasks that wait only for a free device.
    pub runnable: u64,
    /// Queued tasks by model, for the hundred models with the most.
    pub queued_by_model: BTreeMap<String, u64>,
    /// Queued tasks by the name of their priority; priorities without tasks are left out.
    pub queued_by_priority: BTreeMap<Cow<'static, str>, u64>,
    /// Terminal tasks a second over the last ten seconds.
    pub tasks_per_s: f64,
    /// Attempts that had to be repeated.
    pub retries: u64,
    /// Retries that may begin at once. Later ones wait until the budget refills.
    pub retry_budget: f64,
    /// Attempts that were hedged by a second attempt.
    pub hedges: u64,
    /// Background attempts that a worker returned before they began, to make room for more urgent
    /// tasks.
    pub yielded: u64,
    /// Attempts that a worker returned before they began, because another worker would finish them
    /// sooner.
    pub moved: u64,
    /// Mean number of tasks in a run of an executor: 1 if none ran together, 0 before the first
    /// run.
    pub batch_mean: f64,
    /// Breakers of a worker and a model that are open and let no task pass.
    pub breakers_open: u64,
    /// How often a breaker opened.
    pub breakers_opened: u64,
    /// Completions that were refused because their attempt was no longer current.
    pub stale_completions: u64,
    /// Submissions refused because the queue was full.
    pub overloaded: u64,
    /// Runs that were asked to stop because they exceeded their time limit.
    pub overran: u64,
    /// Runs that did not stop when asked to. The processes of their workers were replaced.
    pub hangs: u64,
    /// Lookups of the devices that can run a model's tasks.
    pub capability_cache: Hits,
    /// Tasks with an affinity key that went to the same device as the key's last task.
    pub affinity: Hits,
    /// Journal changes that were made durable by a commit that another change had requested.
    pub group_commit: Hits,
    /// Buffers of memory shared with local workers that were taken for inputs; hits are buffers
    /// that had been used before.
    pub shared_buffers: Hits,
    /// Workers by state.
    pub workers: WorkerCounts,
    /// From submission to the terminal state, of tasks that succeeded.
    pub latency_ms: Percentiles,
    /// Waiting before the last dispatch.
    pub queued_ms: Percentiles,
    /// Time inside the executor.
    pub model_ms: Percentiles,
    /// The rest.
    pub overhead_ms: Percentiles,
    /// The balancing strategy in use.
    pub balancing: Cow<'static, str>,
}

/// Tasks by state. Open states count the present tasks; `submitted` and the terminal states count
/// all since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the states' names")]
pub struct TaskCounts {
    pub submitted: u64,
    pub queued: u64,
    pub running: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
}

/// Workers by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the states' names")]
pub struct WorkerCounts {
    pub ready: u64,
    pub draining: u64,
    /// Workers whose connection is lost and that may come back.
    pub away: u64,
    pub lost: u64,
}

/// Percentiles of a duration in milliseconds, within 4 %; all zero before the first sample.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}
