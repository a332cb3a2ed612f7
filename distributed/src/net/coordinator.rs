//! The coordinator's handle.

use crate::config::CoordinatorConfig;
use crate::error::{Error, Result};
use crate::executor::ExecError;
use crate::net::pki::Pki;
use crate::task::{ModelRef, TaskId, TaskRecord, TaskSpec};
use crate::worker_info::{Stats, WorkerId, WorkerInfo};
use std::net::SocketAddr;

/// A running coordinator. Clones share it; it runs until [`Coordinator::stop`].
#[derive(Clone)]
pub struct Coordinator {}

#[allow(clippy::unused_async, missing_docs, reason = "bodies follow")]
impl Coordinator {
    pub async fn start(_config: CoordinatorConfig, _pki: &Pki) -> Result<Self> {
        Err(Error::Stopped)
    }
    pub fn config(&self) -> &CoordinatorConfig {
        loop {}
    }
    pub fn quic_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }
    pub fn submit(&self, _spec: TaskSpec) -> Result<TaskId> {
        Err(Error::Stopped)
    }
    pub async fn wait(&self, _id: TaskId) -> Result<TaskRecord> {
        Err(Error::Stopped)
    }
    pub async fn run(&self, _spec: TaskSpec) -> Result<TaskRecord> {
        Err(Error::Stopped)
    }
    pub fn task(&self, _id: TaskId) -> Result<TaskRecord> {
        Err(Error::Stopped)
    }
    /// Newest first.
    pub fn tasks(&self) -> Vec<TaskRecord> {
        Vec::new()
    }
    pub fn cancel(&self, _id: TaskId) -> Result<TaskRecord> {
        Err(Error::Stopped)
    }
    pub fn workers(&self) -> Vec<WorkerInfo> {
        Vec::new()
    }
    pub fn worker(&self, _id: &str) -> Result<WorkerInfo> {
        Err(Error::Stopped)
    }
    /// Asks a worker to finish its work and leave.
    pub fn shutdown_worker(&self, _id: &str) -> Result<()> {
        Err(Error::Stopped)
    }
    /// For a supervisor that saw the worker's process end: its tasks are redone at once.
    pub fn worker_exited(&self, _id: &str) {}
    /// Resolves once at least `count` workers are ready.
    pub async fn wait_for_workers(&self, _count: usize) -> Result<()> {
        Err(Error::Stopped)
    }
    /// Has every worker load the model, also those that join later. Answers what became of it
    /// at each present worker.
    pub async fn load(&self, _model: ModelRef) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        Err(Error::Stopped)
    }
    pub fn unload(&self, _model: &ModelRef) {}
    /// Models that every worker is to have.
    pub fn models(&self) -> Vec<ModelRef> {
        Vec::new()
    }
    pub fn stats(&self) -> Stats {
        loop {}
    }
    pub fn balancing(&self) -> &'static str {
        "least_loaded"
    }
    pub fn set_balancing(&self, _name: &str) -> Result<()> {
        Err(Error::Stopped)
    }
    /// Accepts no more tasks and resolves when all are terminal.
    pub async fn drain(&self) {}
    /// Fails what is not terminal with `stopped`, closes all connections and frees the port.
    pub async fn stop(&self) {}
}
