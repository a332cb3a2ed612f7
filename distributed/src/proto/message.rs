//! What travels between coordinator and workers: the headers of the frames.
//!
//! New optional fields go to the end of a header: older readers leave what follows the fields
//! that they know.

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

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Worker to coordinator, first on its report stream.
    Hello,
    /// Coordinator to worker, first on its control stream.
    Welcome,
    /// Worker to coordinator, at the interval of the welcome.
    Heartbeat,
    /// Worker to coordinator: no more tasks, please.
    Draining,
    /// Worker to coordinator: what became of a `Load`.
    Loaded,
    /// Worker to coordinator: a cancelled attempt has let go of its slot.
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
    /// Worker to coordinator: a device does not have a model any more, as an `Unload` wanted.
    Unloaded,
    /// Coordinator to worker: nobody waits for an attempt any more; it does not begin, or is asked to
    /// stop.
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

/// Identifies one attempt at a task. A completion counts only with all three up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The coordinator's epoch.
    pub epoch: u64,
    /// The task's number within the epoch.
    pub seq: u64,
    /// The attempt's number within the task, from 1.
    pub attempt: u32,
}

/// The sessions of a worker over which it goes on with what it holds, by the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stint {
    /// The coordinator's epoch.
    pub epoch: u64,
    pub session: SessionId,
}

/// What every version's [`Hello`] begins with.
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
    /// Threads of each device; what they run at once may be more, in batches.
    pub threads: u32,
    /// Bytes that the inputs of one task may have.
    pub input_bytes_max: u64,
    /// The machine that it runs on: its devices stay what they are when the worker's process ends.
    pub machine: String,
    /// That of its last [`Welcome`]: what it holds belongs to that.
    pub stint: Option<Stint>,
}

/// Header of [`Kind::Welcome`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u32,
    pub epoch: u64,
    pub heartbeat_ms: u32,
    /// Where a worker of the coordinator's machine finds memory to share.
    pub link: Option<SharedMemoryOffer>,
    /// The coordinator waits for what the worker holds of this stint, and of no other.
    pub stint: Stint,
}

/// An invitation to share memory: whoever can reach the socket and knows the nonce, which only
/// this session was told, is the session's worker and on this machine.
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

/// Attempts that one heartbeat names: with 26 bytes each at most, they leave more than half of a
/// header to what the first one says besides.
const HELD_MAX: usize = 1_000;

/// Header of [`Kind::Heartbeat`]. What a worker holds may take several, sent one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Attempts that the worker holds, from the request's header to the answer's last byte; each
    /// with whether a thread has taken it.
    pub held: Vec<(AttemptId, bool)>,
    /// In the first one.
    pub status: Option<ExecutorStatus>,
    /// It names all that the worker holds from the one on, and before the other.
    pub from: Option<AttemptId>,
    pub until: Option<AttemptId>,
}

impl Heartbeat {
    /// What a worker has to say, in as many heartbeats as it takes; `held` is in order.
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

    /// Whether an attempt is not held if it is not named.
    pub(crate) fn covers(&self, id: AttemptId) -> bool {
        self.from.is_none_or(|from| from <= id) && self.until.is_none_or(|until| id < until)
    }
}

/// Header of [`Kind::Loaded`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub device: u32,
    pub model: ModelRef,
    /// The device memory that it takes, where that is known.
    pub result: Result<Option<u64>, ExecError>,
    /// Microseconds that loading alone took; `None` where it was loaded already, or was not.
    pub took_us: Option<u64>,
}

/// Header of [`Kind::Load`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub device: u32,
    pub model: ModelRef,
    /// Runs that are made before the model is there: the inputs of each, which are zeros.
    pub warm_up: Vec<Vec<TensorMeta>>,
    /// How long each of them may take, where that is said.
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
    /// Where it stands among those that wait for the same device.
    pub priority: Priority,
    pub model: ModelRef,
    pub tensors: Vec<TensorMeta>,
    /// Where the tensors' bytes are, unless they follow.
    pub shared: Option<SharedBody>,
    /// What to ask for, where they are too long to follow.
    pub blob: Option<TensorBlob>,
    /// How it runs together with others, where its model says so.
    pub batching: Option<Box<Batching>>,
    /// Whether the answer is to have a trace.
    pub traced: bool,
}

/// A run of bytes that is asked for by its digest: all inputs of a task, one after another.
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
    /// Another task of its batch stands for the run of both.
    pub joined: bool,
    /// What the run was made of, where that was asked for.
    pub trace: Option<Box<RunTrace>>,
}

impl OutcomeHeader {
    /// The answer of an attempt that did not run.
    pub fn of(id: AttemptId, verdict: Verdict) -> Self {
        let (shared, blob, trace) = (None, None, None);
        Self { id, model_us: 0, batch: 1, verdict, shared, blob, joined: false, trace }
    }
}

/// A run of tensors' bytes, from an offset on.
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
    /// It has not begun, and will not: the worker is leaving, or it was asked back.
    Refused,
}

/// Name, element type and shape of a tensor whose bytes follow the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorMeta {
    pub(crate) name: String,
    pub(crate) dtype: u8,
    pub(crate) shape: Vec<u64>,
}
