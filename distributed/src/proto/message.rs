//! Headers of the frames between coordinator and workers.
//!
//! New optional fields go to the end of a header: older readers ignore bytes after the fields that
//! they know.

mod attempt_id;

pub use attempt_id::AttemptId;

use crate::batching::Batching;
use crate::executor::{ExecError, ExecutorStatus};
use crate::proto::state::SessionId;
use crate::run_trace::RunTrace;
use crate::task::{ModelRef, Priority};
use crate::worker_info::WorkerId;
use serde::{Deserialize, Serialize};

/// The protocol version of this build, and the oldest one it still speaks.
pub const VERSION: u32 = 10;
pub(crate) const VERSION_MIN: u32 = 10;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Worker to coordinator, first on its report stream.
    Hello,
    /// Coordinator to worker, first on its control stream.
    Welcome,
    /// Worker to coordinator, at the interval of the welcome.
    Heartbeat,
    /// Worker to coordinator: the worker takes no more tasks.
    Draining,
    /// Worker to coordinator: the result of a `Load`.
    Loaded,
    /// Worker to coordinator: a cancelled attempt has freed its slot.
    Released,
    /// Coordinator to worker.
    Load,
    /// Coordinator to worker.
    Unload,
    /// Coordinator to worker: finish what you hold, then leave.
    Drain,
    /// Coordinator to worker, alone on a bidirectional stream.
    Task,
    /// The worker's answer on the same stream.
    Outcome,
    /// Coordinator to worker: refuse an attempt, if it has not begun.
    Recall,
    /// Worker to coordinator: a device no longer has a model, as an `Unload` asked.
    Unloaded,
    /// Coordinator to worker: an attempt's answer is not wanted any more. The attempt does not
    /// begin, or its run is asked to stop.
    Stop,
    /// Coordinator to worker, alone on a bidirectional stream: a request for an attempt's outputs.
    Fetch,
}

impl Kind {
    const TABLE: [(u8, Self); 15] = [
        (1, Self::Hello),
        (2, Self::Welcome),
        (3, Self::Heartbeat),
        (4, Self::Draining),
        (5, Self::Loaded),
        (6, Self::Released),
        (7, Self::Load),
        (8, Self::Unload),
        (9, Self::Drain),
        (10, Self::Task),
        (11, Self::Outcome),
        (12, Self::Recall),
        (13, Self::Unloaded),
        (14, Self::Stop),
        (15, Self::Fetch),
    ];

    /// The type byte on the wire.
    pub(crate) fn code(self) -> u8 {
        // Each variant is in the table; 0 is no frame type, so a gap would be refused.
        Self::TABLE.iter().find(|(_, kind)| *kind == self).map_or(0, |(code, _)| *code)
    }

    /// The kind of a type byte.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::TABLE.iter().find(|(c, _)| *c == code).map(|(_, kind)| *kind)
    }
}

/// Sessions of a worker over which it keeps its attempts, named by the first of these sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stint {
    /// The coordinator's epoch.
    pub epoch: u64,
    pub session: SessionId,
}

/// The fields that begin every version's [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Versions {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// Header of [`Kind::Hello`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version_min: u32,
    pub version_max: u32,
    pub build: String,
    pub name: WorkerId,
    pub pid: u32,
    /// Tells processes of one name apart: a later one has a larger number.
    pub incarnation: u64,
    /// Tasks that each device may hold.
    pub slots: u32,
    pub status: ExecutorStatus,
    /// Threads of each device; with batches, a device runs more tasks than threads at once.
    pub threads: u32,
    /// Bytes that the inputs of one task may have.
    pub input_bytes_max: u64,
    /// The worker's machine, whose devices stay what they are when the worker's process ends.
    pub machine: String,
    /// The stint of the worker's last [`Welcome`], to which the attempts that it holds belong.
    pub stint: Option<Stint>,
}

/// Header of [`Kind::Welcome`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u32,
    pub epoch: u64,
    pub heartbeat_ms: u32,
    /// Where a worker on the coordinator's machine finds shared memory.
    pub link: Option<SharedMemoryOffer>,
    /// The coordinator still expects attempts that the worker holds of this stint, and no others.
    pub stint: Stint,
}

/// An invitation to share memory. Only this session was told the nonce, so a process that knows it
/// and can reach the socket is the session's worker, on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedMemoryOffer {
    /// The abstract Unix socket.
    pub(crate) name: String,
    pub(crate) nonce: [u8; 32],
}

/// A body that lies in shared memory instead of following its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedBody {
    /// The name under which the memory was passed.
    pub(crate) ticket: u64,
    pub(crate) bytes: u64,
}

/// Attempts that one heartbeat names: at 26 bytes each at most, they leave more than half of a
/// header for the other fields of the first heartbeat.
const HELD_MAX: usize = 1_000;

/// Header of [`Kind::Heartbeat`]. Many attempts are split over several heartbeats in sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Attempts that the worker holds, from the request's header to the answer's last byte; the
    /// flag says whether a thread has taken the attempt.
    pub held: Vec<(AttemptId, bool)>,
    /// Only in the first heartbeat.
    pub status: Option<ExecutorStatus>,
    /// The heartbeat names every held attempt from `from`, included, to `until`, excluded.
    pub from: Option<AttemptId>,
    pub until: Option<AttemptId>,
}

impl Heartbeat {
    /// Splits a worker's report into as many heartbeats as it needs; `held` is in order.
    pub fn all(held: &[(AttemptId, bool)], status: ExecutorStatus) -> Vec<Self> {
        let mut parts: Vec<&[(AttemptId, bool)]> = held.chunks(HELD_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let begin = |part: &&[(AttemptId, bool)]| part.first().map(|(id, _)| *id);
        let next = parts.iter().skip(1).map(begin).chain(std::iter::once(None));
        let mut beats: Vec<Self> = parts
            .iter()
            .zip(next)
            .enumerate()
            .map(|(at, (part, until))| Self {
                held: part.to_vec(),
                status: None,
                from: if at == 0 { None } else { begin(part) },
                until,
            })
            .collect();
        if let Some(first) = beats.first_mut() {
            first.status = Some(status);
        }
        beats
    }

    /// Whether an attempt that this heartbeat does not name is not held.
    pub(crate) fn covers(&self, id: AttemptId) -> bool {
        self.from.is_none_or(|from| from <= id) && self.until.is_none_or(|until| id < until)
    }
}

/// Header of [`Kind::Loaded`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub device: u32,
    pub model: ModelRef,
    /// Bytes of device memory that the model takes, where known.
    pub result: Result<Option<u64>, ExecError>,
    /// Microseconds that loading alone took; `None` where the model was there, or failed to load.
    pub took_us: Option<u64>,
}

/// Header of [`Kind::Load`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub device: u32,
    pub model: ModelRef,
    /// Warm-up runs before the model counts as loaded: the inputs of each run, which are zeros.
    pub warm_up: Vec<Vec<TensorMeta>>,
    /// How long each warm-up run may take, if that is limited.
    pub run_limit_ms: Option<u64>,
}

/// Header of [`Kind::Unload`] and of [`Kind::Unloaded`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub device: u32,
    pub model: ModelRef,
}

/// Header of [`Kind::Task`]; the tensors follow as raw bytes in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskHeader {
    pub id: AttemptId,
    /// The device that is to run it.
    pub device: u32,
    /// Orders the tasks that wait for the same device.
    pub priority: Priority,
    pub model: ModelRef,
    pub tensors: Vec<TensorMeta>,
    /// Where the tensors' bytes are, unless they follow.
    pub shared: Option<SharedBody>,
    /// The digest by which the worker asks for them, where they are too long to follow.
    pub blob: Option<TensorBlob>,
    /// How the task is batched with others, if its model says so.
    pub batching: Option<Box<Batching>>,
    /// Whether the answer is to have a trace.
    pub traced: bool,
}

/// Bytes that are asked for by their digest: all tensors of a task or of an answer, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorBlob {
    /// SHA-256.
    pub sha256: [u8; 32],
    pub bytes: u64,
}

/// Header of [`Kind::Outcome`]; the tensors follow as raw bytes in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutcomeHeader {
    pub id: AttemptId,
    /// Microseconds inside the executor, of the whole batch.
    pub model_us: u64,
    /// Tasks that ran together.
    pub batch: u32,
    pub verdict: Verdict,
    /// Where the tensors' bytes are, unless they follow.
    pub shared: Option<SharedBody>,
    /// The digest by which the coordinator asks for them, where they are too long to follow.
    pub blob: Option<TensorBlob>,
    /// Another task of the batch accounts for the run of both.
    pub joined: bool,
    /// The trace of the run, if the request asked for one.
    pub trace: Option<Box<RunTrace>>,
}

impl OutcomeHeader {
    /// The answer of an attempt that did not run.
    pub fn of(id: AttemptId, verdict: Verdict) -> Self {
        let (shared, blob, trace) = (None, None, None);
        Self { id, model_us: 0, batch: 1, verdict, shared, blob, joined: false, trace }
    }
}

/// A request for tensors' bytes, from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TensorRange {
    pub(crate) sha256: [u8; 32],
    pub(crate) offset: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    Done(Vec<TensorMeta>),
    Error(ExecError),
    /// The attempt has not begun, and will not: the worker is leaving, or the attempt was recalled.
    Refused,
}

/// Name, element type and shape of a tensor whose bytes follow the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorMeta {
    pub(crate) name: String,
    pub(crate) dtype: u8,
    pub(crate) shape: Vec<u64>,
}
