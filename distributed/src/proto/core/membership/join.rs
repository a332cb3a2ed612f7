//! A worker that joins.

use crate::executor::ExecutorStatus;
use crate::proto::message::Stint;
use crate::worker_info::WorkerId;

/// What a worker says when it joins.
#[derive(Debug, Clone)]
pub struct Join {
    pub id: WorkerId,
    /// Tells processes of one name apart: a later one has a larger number.
    pub incarnation: u64,
    pub pid: Option<u32>,
    /// Tasks that each device may hold, and threads that it runs them with.
    pub slots: u32,
    pub threads: u32,
    pub status: ExecutorStatus,
    /// Bytes that the inputs of one task may have.
    pub input_bytes_max: u64,
    /// The machine that it runs on.
    pub machine: String,
    /// The version of its program.
    pub version: String,
    /// The stint of its last welcome.
    pub stint: Option<Stint>,
}
