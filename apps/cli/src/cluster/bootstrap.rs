//! The settings of a worker process: one line of JSON on its stdin, which then stays open for as long as the
//! coordinator lives. The worker ends when stdin closes for any reason.

use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::settings::Limits;
use crate::simd::Simd;
use lgp_sdk::cluster::Identity;
use lgp_sdk::device::DeviceId;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

/// The allocator reads at its start whether to use pages of 2 MiB. Off for a coordinator, whose many small values leave
/// such pages mostly empty; workers hold tensors.
pub(crate) const HUGE_PAGES: &str = "MIMALLOC_ALLOW_THP";

/// The first line of a worker's stdin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bootstrap {
    /// The coordinator's address for workers.
    pub(crate) coordinator: SocketAddr,
    /// The worker's certificate, and the authority that it trusts.
    pub(crate) identity: Identity,
    /// The devices that the worker uses.
    pub(crate) devices: Vec<DeviceId>,
    /// Bytes of each device's memory that models may take, if less than all.
    pub(crate) model_memory: Option<u64>,
    /// The number of compute threads.
    pub(crate) threads: usize,
    /// The widest vector instructions that it uses.
    pub(crate) simd: Simd,
    /// The form of its log lines.
    pub(crate) log_format: LogFormat,
    /// How it batches tasks.
    pub(crate) limits: Limits,
    /// Whether the worker reports which devices of the machine are not used; one worker of a machine does.
    pub(crate) surveys: bool,
    /// The coordinator's model repository.
    pub(crate) models: PathBuf,
}

/// A worker process, killed when this is dropped.
pub(crate) struct Worker {
    pub(crate) process: Child,
    /// Open while the worker is wanted. Kept apart from the process, because waiting for the process closes a stdin
    /// that is still in it.
    pub(crate) lifeline: ChildStdin,
}

/// Starts this same program as a worker.
///
/// # Errors
/// `worker_start_failed`.
pub(crate) async fn spawn(bootstrap: &Bootstrap, log: &Path) -> Result<Worker> {
    let failed = |error: std::io::Error| {
        Failure::new("worker_start_failed", format!("a worker process did not start: {error}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let log = std::fs::File::options().create(true).append(true).open(log).map_err(failed)?;
    let mut child = Command::new(program)
        .arg("worker")
        .env_remove(HUGE_PAGES)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        // A ctrl-C at the terminal is the coordinator's to handle.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut line = serde_json::to_vec(bootstrap).map_err(Failure::internal)?;
    line.push(b'\n');
    let mut lifeline =
        child.stdin.take().ok_or_else(|| Failure::internal("a worker without a stdin"))?;
    lifeline.write_all(&line).await.map_err(failed)?;
    lifeline.flush().await.map_err(failed)?;
    Ok(Worker { process: child, lifeline })
}
