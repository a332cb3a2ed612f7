//! What happens in a run, and what workers are told.

use crate::worker::Report;
use lgp_distributed::inside::message::{AttemptId, Stint};
use lgp_distributed::inside::state::SessionId;
use lgp_distributed::{ModelRef, Priority, WorkerId};
use lgp_memory::NamedTensor;

/// Messages to a worker.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// What it goes on with.
    Welcome(Stint),
    /// The transport's acknowledgement: the other end lives.
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
    /// A worker looks whether what it asked to stop has.
    Stuck {
        worker: usize,
        life: u64,
    },
    /// A person lets a worker's devices take tasks again.
    Enable {
        worker: WorkerId,
    },
    /// A session must have ended by now: its worker was gone long enough.
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
