//! Settings of a coordinator and of a worker, with their defaults.

use crate::clock::unix_ms;
use crate::control::shared::Control;
use crate::net::identity::pki::Identity;
use crate::net::transfer::blobs::BlobsAt;
use crate::net::transport::coordinators::Coordinators;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The default of both `shared_memory_bytes_max` settings.
const SHARED_MEMORY_BYTES_MAX: usize = 256 << 20;

/// The default of both `input_bytes_max` settings.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 30;

/// Settings of a coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoordinatorConfig {
    /// Address for workers, UDP; port 0 picks a free one.
    pub quic_addr: SocketAddr,
    /// The file that keeps durable tasks. Without it, durable tasks are refused.
    pub journal: Option<PathBuf>,
    /// The engines that keep durable tasks instead of the journal's file, so that a coordinator on
    /// another machine can continue them. Data that is too large for a record still lies beside the
    /// journal, unless `blobs` is set. The setting may hold a password and is not serialized.
    #[serde(skip)]
    pub control: Option<Control>,
    /// The address `HOST[:PORT]` at which other coordinators and workers reach this one, if it
    /// differs from the listening address.
    pub reached_at: Option<String>,
    /// The URL at which people and programs reach this coordinator. Other coordinators pass it on.
    pub url: Option<String>,
    /// The store for data that is too large for a record, instead of the folder beside the journal,
    /// so that it survives this machine. The setting may hold keys and is not serialized.
    #[serde(skip)]
    pub blobs: Option<BlobsAt>,
    /// A folder that the coordinators of a cluster keep alike: changes in the leader's folder are
    /// copied to the followers.
    pub mirrored: Option<PathBuf>,
    /// Balancing strategy, one of [`balancing_strategies`](crate::balancing_strategies).
    pub balancing: String,
    /// Tasks that may wait; more are refused with [`Error::Overloaded`](crate::Error).
    pub queue_tasks_max: usize,
    /// Bytes of inputs that waiting tasks may hold.
    pub queue_bytes_max: usize,
    /// The most bytes of one task's inputs, and of its outputs. Tensors above 64 MiB are fetched by
    /// their digest. Such inputs of a durable task lie in a folder beside the journal, named like
    /// it with `.inputs` added, until the task has ended. Outputs of a durable task above 64 KiB
    /// lie there too, until its result expires.
    pub input_bytes_max: usize,
    /// Finished tasks whose records are in memory; the oldest leave first. At most an eighth are
    /// durable tasks, whose records can be read back from the journal. The others are lost.
    pub retained_tasks_max: usize,
    /// Bytes of outputs that records in memory may hold.
    pub retained_bytes_max: usize,
    /// Seconds for which an idempotency key at least stands for its task after the task has ended.
    pub keys_kept_for_s: u64,
    /// The time limit of a run in seconds, if neither its task nor its model sets one. 0 takes ten
    /// times the longest run of its model on its device, at least a minute; before the first run,
    /// ten minutes.
    pub run_limit_s: u64,
    /// Seconds for which results of durable tasks are kept.
    pub results_kept_for_s: u64,
    /// Bytes of results that the journal and the files beside it may hold. Above that, results that
    /// were read are removed first, then the others, each the oldest first.
    pub results_bytes_max: u64,
    /// The most results kept. Each takes about 250 bytes of memory.
    pub results_max: usize,
    /// The delay in milliseconds that the strategy `adaptive` accepts to save one joule; 0 ignores
    /// energy. Only devices whose executor reports [`power_w`](crate::DeviceStatus::power_w) are
    /// charged for it.
    pub thrift_ms_per_joule: f64,
    /// Bytes of memory that may be lent to local workers. Inputs travel through it faster than over
    /// QUIC. 0 lends none.
    pub shared_memory_bytes_max: usize,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            quic_addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)),
            journal: None,
            control: None,
            reached_at: None,
            url: None,
            mirrored: None,
            blobs: None,
            balancing: "least_loaded".into(),
            queue_tasks_max: 10_000,
            queue_bytes_max: 256 << 20,
            input_bytes_max: INPUT_BYTES_MAX,
            retained_tasks_max: 4_096,
            retained_bytes_max: 256 << 20,
            keys_kept_for_s: 600,
            run_limit_s: 0,
            results_kept_for_s: 7 * 24 * 3600,
            results_bytes_max: 16 << 30,
            results_max: 2_000_000,
            thrift_ms_per_joule: 0.0,
            shared_memory_bytes_max: SHARED_MEMORY_BYTES_MAX,
        }
    }
}

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The addresses at which the cluster's coordinators accept workers.
    pub coordinators: Coordinators,
    /// Name, certificate and key, and the cluster's certificate authority.
    pub identity: Identity,
    /// Tasks that run at the same time on each device, each on its own blocking thread; at
    /// least 1.
    pub slots: u32,
    /// Tasks of one model, with inputs of the same names, types and shapes, that a thread may run
    /// together by [`Executor::execute_batch`](crate::Executor::execute_batch); at least 1, which
    /// runs each alone. The worker holds up to `slots` × `batch_max` tasks for each device, and
    /// also those of models with [their own batching](crate::ModelNeeds::batching).
    pub batch_max: u32,
    /// How long a task that could run may wait for others to form a batch; at most 10 s. Zero
    /// batches only tasks that already wait.
    pub batch_delay: Duration,
    /// Distinguishes processes of one name: of two that are connected, the one with the larger
    /// number stays.
    pub incarnation: u64,
    /// First wait before reconnecting; it doubles up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest wait between two connection attempts.
    pub reconnect_max: Duration,
    /// The folder in which a renewed identity is kept; `None` keeps it in memory only.
    pub keep_in: Option<PathBuf>,
    /// Bytes of memory that may be lent to a local coordinator for outputs. 0 disables shared
    /// memory in both directions.
    pub shared_memory_bytes_max: usize,
    /// The most bytes of one task's inputs. Larger tasks go to other workers; if no ready worker
    /// takes them, they fail with [`TaskErrorKind::TooLarge`](crate::TaskErrorKind::TooLarge). The
    /// limit also holds for the sum of all inputs above 64 MiB on this worker: tasks that find no
    /// room wait for it. Outputs beyond both this limit and 1 GiB fail their task.
    pub input_bytes_max: usize,
    /// The name of the worker's machine, under which hangs of its devices are recorded. The default
    /// is the host's name.
    pub machine: String,
}

/// The name of this machine, where the system has one.
fn machine_name() -> String {
    #[cfg(target_os = "linux")]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(target_os = "linux"))]
    String::new()
}

impl WorkerConfig {
    /// Settings with the default waits between connection attempts.
    #[must_use]
    pub fn new(coordinators: impl Into<Coordinators>, identity: Identity, slots: u32) -> Self {
        Self {
            coordinators: coordinators.into(),
            identity,
            slots: slots.max(1),
            batch_max: 1,
            batch_delay: Duration::ZERO,
            incarnation: unix_ms(),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(2),
            keep_in: None,
            shared_memory_bytes_max: SHARED_MEMORY_BYTES_MAX,
            input_bytes_max: INPUT_BYTES_MAX,
            machine: machine_name(),
        }
    }

    /// Tasks that `devices` devices may hold.
    pub(crate) fn places_of(&self, devices: usize) -> u32 {
        self.places().saturating_mul(u32::try_from(devices).unwrap_or(u32::MAX))
    }

    /// Tasks that each device may hold.
    pub(crate) fn places(&self) -> u32 {
        self.slots.max(1).saturating_mul(self.batch_max.max(1))
    }
}
