//! Events of the cluster for subscribers, in the order in which they happen.

use crate::task::ModelRef;
use crate::worker_info::WorkerId;
use serde::Serialize;

/// Something that happened to the cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum Event {
    /// A worker takes tasks.
    WorkerJoined { worker: WorkerId },
    /// A worker finishes its tasks and takes no more.
    WorkerDraining { worker: WorkerId },
    /// A worker left as it was meant to.
    WorkerLeft { worker: WorkerId },
    /// A worker is lost; its tasks are retried.
    WorkerLost { worker: WorkerId, reason: String },
    /// A run at a worker did not stop though it was asked to: its process is replaced.
    WorkerReplaced { worker: WorkerId, reason: String },
    /// A device on which runs did not stop too often takes no tasks until a person enables it.
    DeviceTakenOut { worker: WorkerId, device: String, reason: String },
    /// A person lets a device take tasks again.
    DeviceEnabled { worker: WorkerId, device: String },
    /// A device has loaded a model, or says why it has not.
    ModelLoaded { worker: WorkerId, device: u32, model: ModelRef, error: Option<String> },
    /// A device unloads a model to make room for another.
    ModelEvicted { worker: WorkerId, device: u32, model: ModelRef, for_model: ModelRef },
    /// A worker failed too often at a model and gets no more of its tasks for a while.
    BreakerOpened { worker: WorkerId, model: ModelRef },
    /// Another number of workers is wanted.
    Scaled { from: usize, to: usize, reason: String },
    /// Events that the subscriber missed, because it was too slow.
    Missed { count: u64 },
}
