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
        /// The estimated time until the queue has room, from the present rate.
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
    /// A part of the request is larger than the limit.
    #[error("{given} bytes of {what}, at most {limit} are accepted")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes given.
        given: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The task cannot be accepted as it is.
    #[error("invalid task: {message}")]
    InvalidTask {
        /// What was wrong and what was expected.
        message: String,
    },
    /// The task is durable, but this coordinator was started without a journal.
    #[error("durable tasks need a journal, and this coordinator has none")]
    NoJournal,
    /// The journal could not take a durable task. The task was not accepted.
    #[error("the task was not accepted: {reason}")]
    NotSaved {
        /// Why, for example that the disk is full.
        reason: String,
    },
    /// The place for large tensors of durable tasks cannot be used. Nothing was accepted.
    #[error("large tensors of durable tasks cannot lie in {place}: {reason}")]
    Blobs {
        /// The place, without its secrets.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Too many bytes wait to be written to the journal. Nothing was accepted.
    #[error(
        "{pending_bytes} bytes wait to be written to the journal; try again in {} ms",
        retry_after.as_millis()
    )]
    Backlog {
        /// Bytes that wait, including those of callers who wait for room.
        pending_bytes: usize,
        /// The estimated time until they are written, from the measured rate.
        retry_after: Duration,
    },
    /// The task was accepted once, but its result is no longer kept: it was discarded, it expired,
    /// or there was no room for it.
    #[error("the result of task {id} is not kept any more")]
    Expired {
        /// The task.
        id: TaskId,
    },
    /// The file with the outputs of a succeeded task is missing or damaged.
    #[error("the outputs of task {id} are lost: {reason}")]
    ResultLost {
        /// The task.
        id: TaskId,
        /// What is wrong with the file.
        reason: String,
    },
    /// The file with the outputs of a succeeded task could not be read this time.
    #[error("the outputs of task {id} could not be read, which may pass: {reason}")]
    ResultUnread {
        /// The task.
        id: TaskId,
        /// What the system said.
        reason: String,
    },
    /// The task has not ended, so it has no result to discard.
    #[error("task {id} is {state}, expected one that has ended")]
    NotEnded {
        /// The task.
        id: TaskId,
        /// The task's present state.
        state: TaskState,
    },
    /// The task cannot run again, because its inputs are not kept.
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
    /// The text does not parse.
    #[error("{given:?} is not a {what}, expected {expected}")]
    Parse {
        /// What the text should be.
        what: &'static str,
        /// The text.
        given: String,
        /// The accepted form.
        expected: &'static str,
    },
    /// The control plane cannot be used where the configuration places it.
    #[error("the control plane cannot be used: {reason}")]
    Control {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The log and authority found here are an incomplete copy of a cluster's.
    #[error(
        "{} says that this is an incomplete copy of {from}: end the migration first, by starting it \
         again, or begin elsewhere",
        path.display()
    )]
    Incomplete {
        /// The document that marks the copy as incomplete.
        path: PathBuf,
        /// The source of the copy.
        from: String,
    },
    /// The cluster was moved to another place.
    #[error(
        "{} says that the cluster was moved to {to}: start with that. To go on here instead, which \
         loses what was done there since, undo the migration",
        path.display()
    )]
    Moved {
        /// The document that states the move.
        path: PathBuf,
        /// The place to which the cluster was moved.
        to: String,
    },
    /// The cluster was not moved.
    #[error("the cluster was not moved: {reason}")]
    Migration {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The coordinator finishes its tasks and accepts no new ones.
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
    /// A file that the program relies on is damaged. Nothing was changed.
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
    /// Another coordinator has become the leader, or is about to. It has the task if the task was
    /// accepted; a submission without a key may have been.
    #[error("another coordinator has come to lead, and has the task if it was accepted: ask again")]
    HandedOver,
    /// No leader of the cluster can be reached, or the coordinator that took the task cannot be.
    /// Nothing was accepted.
    #[error("the coordinator that can answer is not reached: {reason}")]
    NoLeader {
        /// What was tried.
        reason: String,
    },
    /// This coordinator no longer leads its cluster. Nothing was changed.
    #[error("cannot write {}: this coordinator, of epoch {epoch}, does not lead its cluster", path.display())]
    Deposed {
        /// What was to be written.
        path: PathBuf,
        /// The epoch in which this coordinator led.
        epoch: u64,
    },
    /// A host name resolves to no address.
    #[error("the name {name:?} leads to no address: {reason}")]
    UnknownHost {
        /// The name.
        name: String,
        /// What the resolver says.
        reason: String,
    },
    /// The coordinator at the address does not belong to the token's cluster. The secret was not
    /// sent.
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
    /// The coordinator does not admit this machine, or no longer does.
    #[error("the coordinator at {addr} refused: {refusal}")]
    JoinRefused {
        /// The coordinator.
        addr: SocketAddr,
        /// Why.
        refusal: JoinRefusal,
    },
    /// Coordinators cannot be announced or discovered on the local network.
    #[error("discovery on the local network: {message}")]
    Discovery {
        /// The reason.
        message: String,
    },
    /// No such join token.
    #[error("join token {id:?} is not known")]
    UnknownToken {
        /// The id asked for.
        id: String,
    },
    /// The role of the caller's certificate does not allow the call.
    #[error("the call {call} needs a certificate with the role {needs}")]
    RoleNeeded {
        /// The call.
        call: String,
        /// The role that it needs; an administrator may also do what a client may.
        needs: Role,
    },
    /// The coordinator could not carry out a call.
    #[error("the coordinator answered: {message}")]
    CallFailed {
        /// The coordinator's message.
        message: String,
    },
    /// A join token cannot be made with these limits.
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
    /// A run did not stop when asked to, for example because a device hangs, or a lost device works
    /// again only in another process. What this process holds is freed when it ends, so a new process
    /// has to take its place.
    #[error(
        "this process has to be replaced: a run does not stop though it was asked to, or a device \
         works again only in a new process"
    )]
    MustRestart,
    /// No connection could be made to the address.
    #[error("no coordinator answers at {addr}: {reason}")]
    Unreachable {
        /// The address.
        addr: SocketAddr,
        /// How the attempt failed.
        reason: String,
    },
    /// The connection broke. A worker reconnects by itself.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// The bytes are not a frame of this protocol.
    #[error(transparent)]
    Frame(#[from] crate::proto::frame::FrameError),
    /// A ring of collectives failed or could not be formed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The journal of durable tasks refused an operation or failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A shape, dtype or allocation error.
    #[error(transparent)]
    Memory(#[from] lgp_memory::Error),
}

/// Errors of the journal of durable tasks. They are cloned for each caller that one failure
/// affects.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has the journal open.
    #[error("journal {} is in use by another coordinator", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A newer program wrote the journal. The file was not touched.
    #[error("journal {} has format {found}, expected at most {supported}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        supported: u32,
    },
    /// The journal's format cannot be upgraded. Its contents were not touched.
    #[error("journal {} has format {from} and cannot be upgraded: {what}", path.display())]
    Upgrade {
        /// The file.
        path: PathBuf,
        /// Its format.
        from: u32,
        /// What failed.
        what: String,
    },
    /// The journal's contents do not match what was written to it. The file was not touched.
    #[error(
        "journal {} is damaged: {what}; restore a backup of it with the folder {}.inputs, or move both \
         away to begin without its tasks",
        path.display(),
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What fails verification.
        what: String,
    },
    /// The disk has no room. Nothing was written.
    #[error("there is no room for journal {}: {source}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The journal takes no more writes. A restart shows what it holds.
    #[error("journal {} failed and takes nothing more: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first failure.
        what: String,
    },
    /// The journal could not be opened, read or created.
    #[error("journal {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A task has no form in the journal. Admission should have refused it.
    #[error("a task cannot be written down: {what}")]
    Record {
        /// What does not fit.
        what: String,
    },
    /// A copy would overwrite a file.
    #[error("{} exists and is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The journal cannot be compacted while it is copied.
    #[error("journal {} is being copied; try again later", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The journal was closed.
    #[error("journal {} is closed", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// A record is too large for the journal.
    #[error("a record of {given} bytes, at most {limit} fit the journal")]
    TooLarge {
        /// Its bytes.
        given: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A ticket is not greater than the one before it.
    #[error("ticket {given} follows {last}, expected a greater one")]
    Ticket {
        /// The ticket given.
        given: u64,
        /// The ticket before it.
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
