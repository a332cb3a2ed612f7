//! The events of a run, and the orders to workers.

use crate::worker::Report;
use lgp_distributed::inside::message::{AttemptId, Stint};
use lgp_distributed::inside::state::SessionId;
use lgp_distributed::{ModelRef, Priority, WorkerId};
use lgp_memory::NamedTensor;

/// Messages to a worker.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// The stint that the worker continues.
    Welcome(Stint),
    /// The transport's acknowledgement, which shows that the peer is alive.
    Acknowledge,
    Task(u32, AttemptId, ModelRef, Priority),
    Cancel(AttemptId),
    Stop(AttemptId),
    Recall(AttemptId),
    Load(u32, ModelRef),
    Unload(u32, ModelRef),
    Drain,
    Close {
        farewell: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Submit(usize),
    Cancel(usize),
    Report {
        worker: usize,
        connection: u64,
        report: Report,
    },
    Order {
        worker: usize,
        connection: u64,
        order: Order,
    },
    Start {
        worker: usize,
    },
    Connect {
        worker: usize,
        life: u64,
    },
    Beat {
        worker: usize,
        connection: u64,
    },
    Executed {
        worker: usize,
        life: u64,
        id: AttemptId,
    },
    /// A worker checks whether the runs that it asked to stop have ended.
    Stuck {
        worker: usize,
        life: u64,
    },
    /// A person puts a worker's devices back into service.
    Enable {
        worker: WorkerId,
    },
    /// A session must have ended by now, because its worker has been gone long enough.
    Detected {
        life: u64,
        session: SessionId,
    },
    /// A commit of the journal ended.
    Synced {
        life: u64,
    },
    /// Outputs were written beside the journal, if there was room.
    Stored {
        life: u64,
        seq: u64,
        outputs: Vec<NamedTensor>,
    },
    /// Callers want all models again.
    LoadModels {
        life: u64,
    },
    StartCoordinator,
    Chaos,
    Heal,
}
