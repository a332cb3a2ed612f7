//! What can go wrong between a caller, the coordinator and its workers.

use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::pki::CaHash;
use crate::net::identity::role::Role;
use crate::net::ring::RingError;
use crate::task::{TaskId, TaskState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the coordinator, of workers and of the wire between them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The queue is full; nothing was accepted.
    #[error(
        "the queue holds {queued} tasks ({queued_bytes} bytes of inputs) and is full; try again in {} ms",
        retry_after.as_millis()
    )]
    Overloaded {
        /// Tasks waiting.
        queued: usize,
        /// Bytes of their inputs.
        queued_bytes: usize,
        /// When room is likely, from the present rate.
        retry_after: Duration,
    },
    /// The idempotency key already stands for another request.
    #[error("idempotency key {key:?} was used with another body by task {existing}")]
    Conflict {
        /// The key.
        key: String,
        /// The task that holds it.
        existing: TaskId,
    },
    /// More than is accepted.
    #[error("{given} bytes of {what}, at most {limit} are accepted")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes given.
        given: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A task that cannot be accepted as it is.
    #[error("invalid task: {message}")]
    InvalidTask {
        /// What was wrong and what was expected.
        message: String,
    },
    /// A durable task, and a coordinator that was started without a journal.
    #[error("durable tasks need a journal, and this coordinator has none")]
    NoJournal,
    /// The journal could not take a durable task, which was not accepted.
    #[error("the task was not accepted: {reason}")]
    NotSaved {
        /// Why, for example that the disk is full.
        reason: String,
    },
    /// The place where large tensors of durable tasks should lie cannot be used. Nothing was accepted.
    #[error("large tensors of durable tasks cannot lie in {place}: {reason}")]
    Blobs {
        /// The place, without its secrets.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Too much waits to be written to the journal; nothing was accepted.
    #[error(
        "{pending_bytes} bytes wait to be written to the journal; try again in {} ms",
        retry_after.as_millis()
    )]
    Backlog {
        /// Bytes that wait, those of callers who wait for room among them.
        pending_bytes: usize,
        /// When they are likely to be written, from the measured rate.
        retry_after: Duration,
    },
    /// A task that was accepted once, and whose result is kept no more: it was let go, or its time
    /// was over, or there was no room for it.
    #[error("the result of task {id} is not kept any more")]
    Expired {
        /// The task.
        id: TaskId,
    },
    /// The outputs of a task that succeeded are kept in a file, which is missing or not what it was.
    #[error("the outputs of task {id} are lost: {reason}")]
    ResultLost {
        /// The task.
        id: TaskId,
        /// What is wrong with the file.
        reason: String,
    },
    /// The outputs of a task that succeeded are kept in a file, which could not be read now.
    #[error("the outputs of task {id} could not be read, which may pass: {reason}")]
    ResultUnread {
        /// The task.
        id: TaskId,
        /// What the system said.
        reason: String,
    },
    /// The result of a task that has none yet cannot be let go.
    #[error("task {id} is {state}, expected one that has ended")]
    NotEnded {
        /// The task.
        id: TaskId,
        /// Where it stands.
        state: TaskState,
    },
    /// A task that is to run again, and whose inputs are not kept.
    #[error("task {id} is {state}, and its inputs are not kept")]
    InputsGone {
        /// The task.
        id: TaskId,
        /// How it ended.
        state: TaskState,
    },
    /// No such task: it was never submitted here.
    #[error("task {id} is not known")]
    UnknownTask {
        /// The id asked for.
        id: String,
    },
    /// No such worker.
    #[error("worker {id:?} is not known")]
    UnknownWorker {
        /// The id asked for.
        id: String,
    },
    /// No such balancing strategy.
    #[error("balancing {given:?} is not known, expected one of: {}", known.join(", "))]
    UnknownBalancing {
        /// The name asked for.
        given: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// A text that does not parse as what it should be.
    #[error("{given:?} is not a {what}, expected {expected}")]
    Parse {
        /// What it should be.
        what: &'static str,
        /// The text.
        given: String,
        /// The accepted form.
        expected: &'static str,
    },
    /// The control plane cannot be where it is said to be.
    #[error("the control plane cannot be used: {reason}")]
    Control {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// What is here is a copy of a cluster's log and authority that is not complete.
    #[error(
        "{} says that this is an incomplete copy of {from}: end the migration first, by starting it \
         again, or begin elsewhere",
        path.display()
    )]
    Incomplete {
        /// The document that says so.
        path: PathBuf,
        /// What it is to be a copy of.
        from: String,
    },
    /// The cluster is kept elsewhere now.
    #[error(
        "{} says that the cluster was moved to {to}: start with that. To go on here instead, which \
         loses what was done there since, undo the migration",
        path.display()
    )]
    Moved {
        /// The document that says so.
        path: PathBuf,
        /// Where it is.
        to: String,
    },
    /// A cluster was not moved.
    #[error("the cluster was not moved: {reason}")]
    Migration {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The coordinator finishes its work and accepts no more.
    #[error("the coordinator is draining and accepts no new tasks")]
    Draining,
    /// The coordinator has stopped.
    #[error("the coordinator has stopped")]
    Stopped,
    /// The UDP socket could not be bound.
    #[error("cannot listen on {addr}/udp: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates could not be made, read or used.
    #[error("certificates: {message}")]
    Pki {
        /// What was wrong.
        message: String,
    },
    /// A file that others rely on is not as it was left. Nothing was changed.
    #[error("{} is damaged: {reason}; {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Another coordinator leads the cluster. Nothing was changed.
    #[error("another coordinator leads the cluster of {}; stop it first", path.display())]
    Led {
        /// Where the cluster's authority is kept.
        path: PathBuf,
    },
    /// Another coordinator has come to lead, or is about to, and has the task if it was accepted: a
    /// submission without a key may have been.
    #[error("another coordinator has come to lead, and has the task if it was accepted: ask again")]
    HandedOver,
    /// No coordinator of the cluster leads, or it cannot be reached; or that cannot which took a task. Nothing
    /// was taken.
    #[error("the coordinator that can answer is not reached: {reason}")]
    NoLeader {
        /// What was tried.
        reason: String,
    },
    /// This coordinator does not lead its cluster any more. Nothing was changed.
    #[error("cannot write {}: this coordinator, of epoch {epoch}, does not lead its cluster", path.display())]
    Deposed {
        /// What was to be written.
        path: PathBuf,
        /// The epoch in which it led.
        epoch: u64,
    },
    /// A name of a host that leads to no address.
    #[error("the name {name:?} leads to no address: {reason}")]
    UnknownHost {
        /// The name.
        name: String,
        /// What the resolver says.
        reason: String,
    },
    /// The coordinator at the address is not that of the cluster that a token is for. It was told
    /// nothing.
    #[error(
        "the coordinator at {addr} does not belong to the cluster of the token, whose authority is \
         {expected}"
    )]
    WrongCluster {
        /// The address.
        addr: SocketAddr,
        /// The hash of the authority's certificate, as the token states it.
        expected: CaHash,
    },
    /// The coordinator does not let this machine in, or not any longer.
    #[error("the coordinator at {addr} refused: {refusal}")]
    JoinRefused {
        /// The coordinator.
        addr: SocketAddr,
        /// Why.
        refusal: JoinRefusal,
    },
    /// Coordinators cannot be announced or searched on the local network.
    #[error("discovery on the local network: {message}")]
    Discovery {
        /// Why not.
        message: String,
    },
    /// No such join token.
    #[error("join token {id:?} is not known")]
    UnknownToken {
        /// The id asked for.
        id: String,
    },
    /// A call that the role of the caller's certificate does not allow.
    #[error("the call {call} needs a certificate with the role {needs}")]
    RoleNeeded {
        /// The call.
        call: String,
        /// The role that it needs; an administrator may also do what a client may.
        needs: Role,
    },
    /// The coordinator could not do what a call asked for.
    #[error("the coordinator answered: {message}")]
    CallFailed {
        /// What it says.
        message: String,
    },
    /// A join token that cannot be made.
    #[error("{given} {what}, expected {expected}")]
    TokenLimit {
        /// What is counted.
        what: &'static str,
        /// How much was asked for.
        given: u64,
        /// What is possible.
        expected: String,
    },
    /// The peer closed the connection for good, or cannot be trusted.
    #[error("the peer at {addr} refused the connection: {reason}")]
    Refused {
        /// The peer.
        addr: SocketAddr,
        /// The reason, as the close code or TLS alert states it.
        reason: String,
    },
    /// A run goes on though it was asked to stop, as where a device hangs: what it holds is free when
    /// the process ends, and another one can take its place.
    #[error("a run does not stop though it was asked to: this process has to be replaced")]
    MustRestart,
    /// Nobody answers there: no connection was made.
    #[error("no coordinator answers at {addr}: {reason}")]
    Unreachable {
        /// The address.
        addr: SocketAddr,
        /// What came of the attempt.
        reason: String,
    },
    /// The connection broke; a worker tries again by itself.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// Bytes that are not a frame of this protocol.
    #[error(transparent)]
    Frame(#[from] crate::proto::frame::FrameError),
    /// A ring of collectives failed, or could not be made.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The journal of durable tasks refused or failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A shape, dtype or allocation error.
    #[error(transparent)]
    Memory(#[from] lgp_memory::Error),
}

/// Errors of the journal of durable tasks. Cloned for all whom one failure concerns.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another has it open.
    #[error("journal {} is in use by another coordinator", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer program; the file was not touched.
    #[error("journal {} has format {found}, expected at most {supported}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        supported: u32,
    },
    /// Its format cannot be brought up to date; its contents were not touched.
    #[error("journal {} has format {from} and cannot be upgraded: {what}", path.display())]
    Upgrade {
        /// The file.
        path: PathBuf,
        /// Its format.
        from: u32,
        /// What failed.
        what: String,
    },
    /// What it holds is not what was written to it; the file was not touched.
    #[error(
        "journal {} is damaged: {what}; restore a backup of it with the folder {}.inputs, or move both \
         away to begin without its tasks",
        path.display(),
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not verify.
        what: String,
    },
    /// There is no room; nothing was written.
    #[error("there is no room for journal {}: {source}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// It can no longer be written to; a restart shows what it holds.
    #[error("journal {} failed and takes nothing more: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first failure.
        what: String,
    },
    /// It could not be opened, read or made.
    #[error("journal {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A task that has no form in the journal, which admission should have refused.
    #[error("a task cannot be written down: {what}")]
    Record {
        /// What does not fit.
        what: String,
    },
    /// A copy would replace a file.
    #[error("{} exists and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be compacted while it is copied.
    #[error("journal {} is being copied; try again later", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// It was closed.
    #[error("journal {} is closed", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// A record is too large.
    #[error("a record of {given} bytes, at most {limit} fit the journal")]
    TooLarge {
        /// Its bytes.
        given: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Tickets must rise.
    #[error("ticket {given} follows {last}, expected a greater one")]
    Ticket {
        /// The ticket given.
        given: u64,
        /// The one before it.
        last: u64,
    },
}

impl Error {
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
        source: std::io::Error,
    ) -> Self {
        Self::File { what, path: path.into(), source }
    }
}
