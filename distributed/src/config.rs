//! Settings of a coordinator and of a worker, with their defaults.

use crate::control::shared::Control;
use crate::net::identity::pki::Identity;
use crate::net::transfer::blobs::BlobsAt;
use crate::net::transport::coordinators::Coordinators;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Wall time in whole milliseconds.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes of memory that a process lends by default.
const SHARED_MEMORY_BYTES_MAX: usize = 256 << 20;

/// Bytes of the inputs of one task that are accepted by default.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 30;

/// Settings of a coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoordinatorConfig {
    /// Address for workers, UDP; port 0 picks a free one.
    pub quic_addr: SocketAddr,
    /// The file that durable tasks are kept in; without one there are none.
    pub journal: Option<PathBuf>,
    /// Where durable tasks are kept instead of the journal's file, so that a coordinator on another
    /// machine can go on with them. What is too large for a record still lies beside the journal,
    /// unless `blobs` says otherwise. It may hold a password, and is not written out.
    #[serde(skip)]
    pub control: Option<Control>,
    /// Where other coordinators and workers reach this one, `HOST[:PORT]`, if not at the address that it
    /// listens on.
    pub reached_at: Option<String>,
    /// Where people and programs reach this one, which others tell them.
    pub url: Option<String>,
    /// Where what is too large for a record lies instead of beside the journal, so that it outlives this
    /// machine. It may hold keys, and is not written out.
    #[serde(skip)]
    pub blobs: Option<BlobsAt>,
    /// A folder that coordinators which take part keep alike: what changes in that of the one that leads
    /// changes in the others'.
    pub mirrored: Option<PathBuf>,
    /// Balancing strategy, one of [`balancing_strategies`](crate::balancing_strategies).
    pub balancing: String,
    /// Tasks that may wait; more are refused with [`Error::Overloaded`](crate::Error).
    pub queue_tasks_max: usize,
    /// Bytes of inputs that waiting tasks may hold.
    pub queue_bytes_max: usize,
    /// Bytes that the inputs of one task may have, and its outputs. Above 64 MiB the other side asks for
    /// them by their digest. Such inputs of a durable task lie in a folder beside the journal, which has its
    /// name and `.inputs` after it, until the task has ended; outputs of one above 64 KiB lie there too,
    /// until its result goes.
    pub input_bytes_max: usize,
    /// Finished tasks whose records are in memory; the oldest leave it first. Those of durable tasks,
    /// of which there is an eighth at most, are read back from the journal, the others are gone.
    pub retained_tasks_max: usize,
    /// Bytes of outputs that records in memory may hold.
    pub retained_bytes_max: usize,
    /// Seconds for which an idempotency key stands for its task after that has ended, at least.
    pub keys_kept_for_s: u64,
    /// Seconds that a run may take whose task and model say nothing of it; 0 goes by the longest run of
    /// its model on its device: ten times as long, at least a minute, and ten minutes before the first.
    pub run_limit_s: u64,
    /// Seconds for which results of durable tasks are kept.
    pub results_kept_for_s: u64,
    /// Bytes of results that the journal and the files beside it may hold; above that those that were read go first, then the
    /// others, each the oldest first.
    pub results_bytes_max: u64,
    /// How many of them, for each of which about 250 bytes stay in memory.
    pub results_max: usize,
    /// Milliseconds of a longer completion time that saving a joule is worth to the strategy
    /// `adaptive`; 0 looks at time alone. Only devices whose executor reports
    /// [`power_w`](crate::DeviceStatus::power_w) cost any.
    pub thrift_ms_per_joule: f64,
    /// Bytes of memory that may be lent to workers of this machine, through which inputs travel
    /// faster than over QUIC; 0 shares none.
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
    /// The addresses for workers of the cluster's coordinators.
    pub coordinators: Coordinators,
    /// Name, certificate and key, and the cluster's certificate authority.
    pub identity: Identity,
    /// Tasks that run at the same time on each device, each on its own blocking thread; at
    /// least 1.
    pub slots: u32,
    /// Tasks of one model, with inputs of the same names, types and shapes, that a thread may run
    /// together by [`Executor::execute_batch`](crate::Executor::execute_batch); at least 1, which
    /// runs each alone. The worker holds up to `slots` × `batch_max` tasks for each device, and
    /// beside them those of models that [say so themselves](crate::ModelNeeds::batching).
    pub batch_max: u32,
    /// How long a task that could run may wait for others to run with; at most 10 s. Zero takes
    /// only what is there already.
    pub batch_delay: Duration,
    /// Tells processes of one name apart: of two that are connected, the one with the larger
    /// number stays.
    pub incarnation: u64,
    /// First wait before a lost connection is made anew; doubles up to `reconnect_max`.
    pub reconnect_min: Duration,
    /// Longest wait between two connection attempts.
    pub reconnect_max: Duration,
    /// The folder in which a renewed identity is kept; `None` keeps it in memory only.
    pub keep_in: Option<PathBuf>,
    /// Bytes of memory that may be lent to a coordinator on this machine, for outputs; 0 shares
    /// none, in either direction.
    pub shared_memory_bytes_max: usize,
    /// Bytes that the inputs of one task may have. Tasks with more go to other workers; where none of
    /// those that are ready takes as many, they fail with
    /// [`TaskErrorKind::TooLarge`](crate::TaskErrorKind::TooLarge).
    /// Inputs above 64 MiB of all tasks that are held here have no more bytes together: those that
    /// find no room wait for it. Outputs with more, and with more than 1 GiB, fail their task.
    pub input_bytes_max: usize,
    /// The machine that the worker runs on, by whose name its devices are remembered when they hang;
    /// the host's name by default.
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

    /// Tasks that so many devices may hold.
    pub(crate) fn places_of(&self, devices: usize) -> u32 {
        self.places().saturating_mul(u32::try_from(devices).unwrap_or(u32::MAX))
    }

    /// Tasks that each device may hold.
    pub(crate) fn places(&self) -> u32 {
        self.slots.max(1).saturating_mul(self.batch_max.max(1))
    }
}
